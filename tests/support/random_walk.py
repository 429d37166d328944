"""Random walks: all commands in any order over a collection that its owner edits, with faults on the way.

Between the steps of a walk its promises are checked, from the documentation alone: no record of the owner is
lost or altered, each is kept or has a keeper with a similar text, no two kept records have the same text, and
a second `sync` changes nothing.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path
from random import Random
from typing import Any

from pymongo.database import Database

from dedup_job.ledger.overrides import KEEP
from tests.support.fault_proxy import Fault, Kind, Wire
from tests.support.forked_commands import Ended, Forks
from tests.support.walk_views import Decisions, Keeper, name_keeper, wrong_previews, wrong_views

SOURCE, TARGET, ARCHIVE, FORMER, MARK = "pages", "unique", "pages_archive", "pages_before", "dedup"
REFERENCE = "known"
KINDS = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER, Kind.REQUEST_LOST, Kind.REPLY_LOST)
MATCH = ("", 'within = ["group"]', 'prefer = [{field = "rank", order = "descending"}]')
LEAST_SIMILARITY, SHINGLE = 0.8, 3  # of Chinese texts
LEAVES_NO_CHOICE = ("undo", "restore", "sweep", "promote")  # if killed, to be repeated before anything else
FAULT_SHARE = 0.4
TEXTS, MOST_IDS, HIGHEST_RANK = 5, 1_000, 9
MOST_ADVICE = 30
LAST_COMMAND = 40  # to the server, of those with a fault
BETWEEN_CHECKS = 5  # steps

Record = dict[str, Any]


class BrokenPromise(AssertionError):
    """Raised if a promise is broken; the message has the steps of the walk."""


@dataclass
class Walk:
    """One walk, in a database of its own.

    Attributes:
        records: The owner's records by id, as the owner wrote them last.
        steps: What has been done.
    """

    database: Database[Any]
    folder: Path
    wire: Wire
    forks: Forks
    chance: Random
    records: dict[int, Record] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._has_copies = self._had_copies = self.chance.random() < 0.5
        self._texts = [self._fresh_text() for _ in range(TEXTS)]
        self._match = self.chance.choice(MATCH)
        self._batch = self.chance.choice([1, 3, 20])
        # Whether the target refuses records whose field `bad` is true.
        self._refuses = self._has_copies and "prefer" not in self._match and self.chance.random() < 0.4
        if self._refuses:
            self.database.create_collection(TARGET, validator={"bad": {"$ne": True}})
        self._used = set[int]()
        # Whether a killed command was left as it was.
        self._is_left = False
        # The records of the former source after a promotion.
        self._former: Mapping[int, Record] = {}
        # Records that came after a promotion, and stayed in the target when it was taken back.
        self._arrived = set[int]()
        self._has_reference = self.chance.random() < 0.3
        # Target and ledger at an earlier moment.
        self._dump: Mapping[str, list[Record]] = {}
        self._write_settings()

    def _write_settings(self) -> None:
        beside = f'collection = "{TARGET}"\n' if self._had_copies else ""
        copy = "" if self._has_copies else "copy = false\n"
        named = f'[[reference]]\ndatabase = "{self.database.name}"\ncollection = "{REFERENCE}"\n'
        (self.folder / "walk.toml").write_text(
            f'[source]\ndatabase = "{self.database.name}"\ncollection = "{SOURCE}"\nfields = ["text"]\n'
            f'[target]\ndatabase = "{self.database.name}"\n{beside}{copy}'
            f"[match]\n{self._match}\n[limits]\nbatch_records = {self._batch}\n"
            f"{named if self._has_reference else ''}",
            "utf-8",
        )

    def go(self, steps: int) -> None:
        """Take some steps, and check the promises between them.

        Raises:
            BrokenPromise: If one does not hold.
        """
        self.steps.append(
            f"copies: {self._has_copies}, refuses: {self._refuses}, reference: {self._has_reference}, "
            f"batches of {self._batch}, {self._match}"
        )
        if self._has_reference:
            self._insert_reference()
        self._insert()
        self._command("backfill")
        self._expect(self._run("backfill"), 0, 3)
        for step in range(1, steps + 1):
            self.chance.choice(self._choices())()
            if step % BETWEEN_CHECKS == 0 or step == steps:
                self.check()

    def _choices(self) -> list[Callable[[], object]]:
        """Return what can be done next; what is there more often is more likely."""
        edits = [self._edit, self._touch]
        choices: list[Callable[[], object]] = [*[self._insert] * 3, *edits * 2, self._delete]
        choices += [self._decide, self._sync, self._restore, self._undo]
        choices += [self._insert_reference] if self._has_reference else []
        # What prefers records needs the dropped ones in the source, and only it has the refused ones.
        can_move = "prefer" not in self._match and not self._refuses
        if self._has_copies:
            return [*choices, self._dump_or_put_back, *([self._promote] if can_move else [])]
        choices += [lambda: self._command("mark", "--yes"), lambda: self._command("mark", "--yes", "--clear")]
        if can_move:
            choices.append(lambda: self._command("sweep", "--archive", ARCHIVE, "--yes"))
        if self._had_copies:
            choices.append(self._promote_back)
        return choices

    # What the owner does.

    def _insert(self) -> None:
        # Before and behind the others; an id that comes back would be another record.
        new = self.chance.sample([one for one in range(1, MOST_IDS) if one not in self._used], 4)
        self._used.update(new)
        made = [self._made(one) for one in sorted(new)[: self.chance.randint(1, 4)]]
        self.steps.append(f"insert {[one['_id'] for one in made]}")
        self.database[SOURCE].insert_many(made)
        self.records.update((one["_id"], one) for one in made)

    def _insert_reference(self) -> None:
        one = self.database[REFERENCE].count_documents({}) + 1
        self.steps.append(f"insert {one} into the reference")
        # Nothing is preferred to a reference record.
        self.database[REFERENCE].insert_one({**self._made(one), "rank": HIGHEST_RANK})

    def _made(self, one: int) -> Record:
        group, rank = self.chance.randrange(2), self.chance.randrange(3)
        is_bad = self.chance.random() < 0.2
        return {"_id": one, "text": self._text(), "group": group, "rank": rank, "n": 0, "bad": is_bad}

    def _edit(self) -> None:
        self._update("text", self._text())

    def _touch(self) -> None:
        name = self.chance.choice(["n", "rank", "group"])
        self._update(name, self.chance.randrange(2))

    def _update(self, name: str, value: Any) -> None:
        for one in self._some_in_source():
            self.steps.append(f"update {name} of {one}")
            self.database[SOURCE].update_one({"_id": one}, {"$set": {name: value}})
            self.records[one] = {**self.records[one], name: value}

    def _delete(self) -> None:
        for one in self._some_in_source():
            self.steps.append(f"delete {one}")
            self.database[SOURCE].delete_one({"_id": one})
            del self.records[one]

    def _some_in_source(self) -> list[int]:
        ids = sorted(one["_id"] for one in self.database[SOURCE].find({}, {"_id": 1}))
        return self.chance.sample(ids, min(len(ids), self.chance.randint(1, 3)))

    def _fresh_text(self) -> str:
        return "".join(chr(0x4E00 + self.chance.randrange(3000)) for _ in range(60))

    def _text(self) -> str:
        """Return a text that others have, too, or that differs from theirs in a few characters."""
        text = list(self.chance.choice(self._texts))
        for _ in range(self.chance.choice([0, 0, 1, 1, 2, 3])):
            text[self.chance.randrange(len(text))] = chr(0x4E00 + self.chance.randrange(3000))
        return "".join(text)

    # Commands.

    def _decide(self) -> None:
        """Run, and check that nothing was dropped for a keeper that is gone or has another text."""
        before, was_left = self._dropped(), self._is_left
        self._command("run")
        # A killed command, and `prefer`, may have decided about texts that the owner has edited since.
        if was_left or "prefer" in self._match:
            return
        kept: dict[Any, Record] = {**self._references()}
        kept |= self._contents(TARGET if self._has_copies else SOURCE)
        for one, keeper in self._dropped().items() - before.items():
            if keeper not in kept or not self._may_be_dropped(self.records[one], kept[keeper]):
                self._fail(f"{one} was dropped for {keeper}: {self.records[one]}, {kept.get(keeper)}")

    def _sync(self) -> None:
        self._command("sync", "--yes", "--allow")

    def _restore(self) -> None:
        """Restore dropped records that the source or the archive still has."""
        ids = sorted(self._dropped().keys() & self.records.keys())
        if ids:
            self._command("restore", *map(str, self.chance.sample(ids, min(2, len(ids)))))

    def _undo(self) -> None:
        """Undo the newest run that can be undone."""
        (status,) = self._ask("status")
        modes = ("backfill", "run", "sync", "update")
        names = [run["run"] for run in status["runs"] if run["mode"] in modes and not run["undone"]]
        if names:
            self._undo_run(names[0])

    def _undo_run(self, name: str) -> None:
        if self._command("undo", name, "--yes") == 3 and self._has_copies:
            # As the documentation says: what stays in the target is for its owner to remove.
            rows = self._ledger("left").find({"decided": {"$exists": False}})
            left = [row["_id"] for row in rows]
            self.steps.append(f"remove {left} from the target")
            self.database[TARGET].delete_many({"_id": {"$in": left}})

    def _promote(self) -> None:
        self._expect(self._run("sync", "--yes", "--allow"), 0)
        self._command("promote", "--yes")
        self._has_copies, self._former = False, self.records
        self.records = self._contents(SOURCE)
        self._write_settings()

    def _promote_back(self) -> None:
        """Take the promotion back, and do what each refusal advises; give up after a sweep."""
        options = list[str]()
        for _ in range(MOST_ADVICE):
            ended = self._run("promote", "--back", "--dry-run", *options)
            self.steps.append(f"promote --back --dry-run {' '.join(options)}: {ended.code}")
            if ended.code == 0:
                break
            self._expect(ended, 64)
            if "sweep has moved records" in ended.said:
                return
            if run := re.search(r"dedup-job undo .* (\S+)$", ended.said.strip()):
                self._undo_run(run[1])
            elif "records were marked" in ended.said:
                self._command("mark", "--clear", "--yes")
            elif "add --skip-verify" in ended.said and not options:
                self._change_former()
                options = ["--skip-verify"]
            else:
                self._fail(f"no advice: {ended.said}")
        else:
            self._fail(f"the advice does not help: {ended.said}")
        self._command("promote", "--back", "--yes", *options)
        self._arrived |= self._left_by_promotion()
        self.records = {**self._former, **self.records}
        # A record that was edited, decided again and undone: the former source has its old version.
        for one in self._differing():
            self.database[SOURCE].replace_one({"_id": one}, self.records[one])
        self._has_copies, self._former = True, {}
        self._write_settings()

    def _differing(self) -> list[int]:
        """Return the records that are not in the source as their owner wrote them last."""
        found = self._contents(SOURCE)
        return [one for one in found if found[one] != self.records.get(one)]

    def _change_former(self) -> None:
        """Make the changes to the kept records in the former source, too."""
        dropped = self._dropped()
        former = dict(self._former)
        for one in former.keys() - dropped.keys():
            if one not in self.records:
                self.database[FORMER].delete_one({"_id": one})
                del former[one]
            elif former[one] != self.records[one]:
                self.database[FORMER].replace_one({"_id": one}, self.records[one])
                former[one] = self.records[one]
        self._former = former

    def _dump_or_put_back(self) -> None:
        """Dump target and ledger, or put the dump back into the same collections."""
        self.steps.append("put the dump back" if self._dump else "dump target and ledger")
        if not self._dump:
            names = self.database.list_collection_names(filter={"name": {"$regex": f"^{TARGET}"}})
            self._dump = {name: list(self.database[name].find()) for name in names}
            return
        for name in self.database.list_collection_names(filter={"name": {"$regex": f"^{TARGET}"}}):
            self.database[name].delete_many({})
            if rows := self._dump.get(name):
                self.database[name].insert_many(rows)
        self._dump = {}

    def _command(self, *arguments: str) -> int | None:
        """Run a command, with faults on the way, to its end.

        Returns:
            The exit code; None if the command is left as it was when it was killed.
        """
        while True:
            fault = None
            if self.chance.random() < FAULT_SHARE:
                fault = Fault(self.chance.choice(KINDS), self.chance.randint(1, LAST_COMMAND))
            ended = self._run(*arguments, fault=fault)
            about = f", {fault.kind} {fault.number}" if fault else ""
            self.steps.append(f"{' '.join(arguments)}{about}: {ended.code}")
            if ended.code != -signal.SIGKILL:
                # 64: the run that was to be undone has decided nothing.
                self._expect(ended, 0, 3, *([64] if arguments[0] == "undo" else []))
                self._is_left = False
                return ended.code
            if arguments[0] not in LEAVES_NO_CHOICE and self.chance.random() < FAULT_SHARE:
                self._is_left = True
                return None

    def _run(self, *arguments: str, fault: Fault | None = None) -> Ended:
        pid = 0

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)

        self.wire.arm(fault, kill)
        servers = {"DEDUP_SOURCE_URI": self.wire.uri, "DEDUP_TARGET_URI": self.wire.uri}
        arguments = (*arguments, "-c", str(self.folder / "walk.toml"))
        pid = self.forks.start(arguments, {**os.environ, **servers})
        return self.forks.ended()

    def _ask(self, *arguments: str) -> list[Any]:
        """Run a command without faults, and return the JSON objects that it printed."""
        ended = self._run(*arguments, "--json")
        self._expect(ended, 0, *([3] if self._refuses else []))
        return [json.loads(line) for line in ended.printed.splitlines()]

    def _expect(self, ended: Ended, *codes: int) -> None:
        if ended.code not in codes:
            self._fail(f"exit code {ended.code}: {ended.said.strip()} {ended.printed.strip()}")

    def _fail(self, what: str) -> None:
        raise BrokenPromise("\n".join([*self.steps, what]))

    # Promises.

    def check(self) -> None:
        """Bring everything up to date, and check every promise.

        Raises:
            BrokenPromise: If one does not hold.
        """
        self.steps.append("check")
        codes = (0, 3) if self._refuses else (0,)
        (changes,), (preview,) = self._ask("changes", "--content"), self._ask("sync", "--dry-run")
        (sync,) = self._ask("sync", "--yes", "--allow")
        for broken in chain(wrong_previews(changes, preview, sync), self._broken()):
            self._fail(broken)
        self._expect(self._run("verify"), 0)
        (status,) = self._ask("status")
        # If all was undone and the source is empty, nothing is decided, and `list` says so with 78.
        if status["plans"]:
            for broken in wrong_views(self._ask, self._decisions(), self.chance, self.folder):
                self._fail(broken)
        if self._refuses:
            # Refused records are tried at each sync, and may be dropped for one that the last sync has kept.
            self._expect(self._run("sync", "--yes", "--allow"), *codes)
        before = self._state()
        self._expect(self._run("sync", "--yes", "--allow"), *codes)
        if self._state() != before:
            self._fail("a second sync changed something")

    def _broken(self) -> Iterator[str]:
        """Yield what does not hold."""
        source, archive = self._contents(SOURCE), self._contents(ARCHIVE)
        if both := source.keys() & archive.keys():
            yield f"in the source and in the archive: {both}"
        if (found := source | archive) != self.records:
            altered = [one for one in self.records if found.get(one) != self.records[one]]
            yield f"lost or altered: {altered}; too much: {found.keys() - self.records.keys()}"
        if self._contents(FORMER) != self._former:
            yield "the former source was altered"
        truth = self._decisions()
        kept = truth.kept
        left = self._left_by_promotion() - self.records.keys()
        target = {one: record for one, record in self._contents(TARGET).items() if one not in left}
        if self._has_copies and target != {one: self.records[one] for one in kept}:
            yield f"the target does not have exactly the kept records {sorted(kept)}"
        if not self._has_copies and not kept <= source.keys():
            yield f"kept records that are not in the source: {kept - source.keys()}"
        yield from self._wrong_decisions(truth.dropped, kept)

    def _decisions(self) -> Decisions:
        dropped, refused = self._dropped(), self._refused()
        kept = self.records.keys() - dropped.keys() - refused
        standing = self._ledger("overrides").find({"action": KEEP})
        restored = {row["_id"] for row in standing} & self.records.keys()
        unchecked = (self._restored() - restored) & kept
        references = self._references().keys()
        return Decisions(self.records, dropped, kept, refused, restored, unchecked, references, self._arrived)

    def _wrong_decisions(self, dropped: Mapping[int, Keeper], kept: Collection[int]) -> Iterator[str]:
        references = self._references()
        everything: dict[Any, Record] = {**references, **self._former, **self.records}
        for one, keeper in dropped.items():
            if one not in everything or (keeper not in kept and keeper not in references):
                yield f"{one} was dropped for {keeper}, one of which is not there"
            elif not self._may_be_dropped(everything[one], everything[keeper]):
                yield f"{one} was dropped for {keeper}: {everything[one]}, {everything[keeper]}"
        for one, other in combinations(sorted(set(kept) - self._restored() - self._arrived), 2):
            if self._are_equal(self.records[one], self.records[other]):
                yield f"{one} and {other} have the same text, and both are kept"

    def _may_be_dropped(self, one: Record, keeper: Record) -> bool:
        """Return whether a record is similar to another one, and not better."""
        if "within" in self._match and one["group"] != keeper["group"]:
            return False
        if "prefer" in self._match and (one["rank"], -one["_id"]) > (keeper["rank"], -keeper["_id"]):
            return False
        return similarity(one["text"], keeper["text"]) >= LEAST_SIMILARITY

    def _are_equal(self, one: Record, other: Record) -> bool:
        has_one_group = "within" not in self._match or one["group"] == other["group"]
        return bool(has_one_group and one["text"] == other["text"])

    def _dropped(self) -> dict[int, Keeper]:
        """Return the keeper of each dropped record."""
        rows = self._ledger("dropped").find({"_id": {"$nin": list(self._restored())}})
        return {row["_id"]: name_keeper(row["keeper"]) for row in rows}

    def _refused(self) -> set[int]:
        """Return the bad records that the target should refuse."""
        dropped = self._dropped()
        bad = {one for one in self.records if self._refuses and self.records[one]["bad"]}
        return bad - dropped.keys()

    def _restored(self) -> set[int]:
        """Return the records that a person put back, also those that were decided again since."""
        return {row["_id"] for row in self._ledger("overrides").find()}

    def _left_by_promotion(self) -> set[int]:
        """Return the records that a promotion had brought into the target, and that stayed when it ended."""
        return {row["_id"] for row in self._ledger("left").find({"reason": "promoted"})}

    def _references(self) -> dict[Keeper, Record]:
        """Return the reference records, by the name that they have as keepers."""
        name, records = f"{self.database.name}.{REFERENCE}", self._contents(REFERENCE)
        return {name_keeper({"reference": name, "id": one}): record for one, record in records.items()}

    def _contents(self, name: str) -> dict[int, Record]:
        """Return the records of a collection, without marks."""
        found = self.database[name].find()
        return {one["_id"]: {key: one[key] for key in one if key != MARK} for one in found}

    def _ledger(self, name: str) -> Any:
        return self.database[f"{TARGET if self._had_copies else SOURCE}.dedup.{name}"]

    def _state(self) -> Any:
        names = (SOURCE, TARGET, ARCHIVE, self._ledger("dropped").name)
        return [sorted(self.database[name].find(), key=lambda one: one["_id"]) for name in names]


def similarity(one: str, other: str) -> float:
    """Return the Jaccard similarity of the sets of shingles of two Chinese texts."""
    sets = [{text[at : at + SHINGLE] for at in range(len(text) - SHINGLE + 1)} for text in (one, other)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])
