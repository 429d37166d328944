"""Check on real sets that the library and `find` make the same decisions as the job, and time them.

    python -m scripts.bench.library --data DIR --tools DIR [--sets leetcode,medical_qa,reuters21578] [--quick]

The data are the same as for `scripts.bench.accuracy`. The job decides a set from MongoDB to MongoDB;
`Deduplicator.add_all` gets the same raw texts in the same order, in one process. The table counts records
with different decisions. Then `find` gets the text of each dropped record; it may return another keeper,
which was kept later and is nearer. Its rate counts the processor time of both of its processes after the
ledger is loaded, without the server's. A second table compares the ledger with the output of `list`, with
`group` for the largest groups, and with the records that `list --ids --reason near | restore -` restores.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pymongo import MongoClient

from dedup_job import Deduplicator
from dedup_job.pipeline.measure_and_limit_memory import family
from scripts.bench.measure import DATABASE, Commands, cpu_seconds, fill, job_commands, row, table
from scripts.bench.reference import TextSet, arguments
from scripts.dev.local_mongod import Server, open_server

Row = dict[str, Any]

# Groups to show.
GROUPS = 5


def added(texts: TextSet) -> tuple[Deduplicator, dict[Any, Any], float]:
    """Return a deduplicator that has the texts, its matches, and the processor seconds it took."""
    ours = Deduplicator()
    # Loads compiled code before the clock starts.
    ours.add_all((-place, text) for place, text in enumerate(texts.raw[:50], 1))
    ours = Deduplicator()
    started = time.process_time()
    matches = ours.add_all(zip(texts.ids, texts.raw, strict=True))
    return ours, matches, time.process_time() - started


def apart(matches: dict[Any, Any], dropped: dict[Any, Row]) -> int:
    """Return the number of records that the library and the job decided differently."""
    ours = {
        key: (match.keeper, match.reason, match.distance, round(match.similarity, 4))
        for key, match in matches.items()
    }
    jobs = {
        key: (found["keeper"], found["reason"], found["distance"], round(found["similarity"], 4))
        for key, found in dropped.items()
    }
    return len({key for key in ours.keys() | jobs.keys() if ours.get(key) != jobs.get(key)})


def asked(server: Server, commands: Commands, lines: Iterable[str], count: int) -> tuple[list[Row], float]:
    """Send lines to `find`; return its answers, and lines per CPU second without loading."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lines"
        file.write_text("\n".join(lines) + "\n", "utf-8")
        environment = {**os.environ, "DEDUP_SOURCE_URI": server.uri}
        command = [*commands.program, "find", "-c", str(commands.settings), "--json"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(b"{}\n")
            process.stdin.flush()
            # After the first answer, the index is loaded.
            process.stdout.readline()
            started = sum(map(cpu_seconds, (process.pid, *family(process.pid))))
            feeder = subprocess.Popen(["cat", str(file)], stdout=process.stdin)
            process.stdin.close()
            answers = [json.loads(process.stdout.readline()) for _ in range(count)]
            seconds = sum(map(cpu_seconds, (process.pid, *family(process.pid)))) - started
            feeder.wait()
    return answers, count / seconds


def piped(server: Server, commands: Commands, *steps: Sequence[str]) -> list[str]:
    """Run commands, each with the previous command's output as its input; return the last command's lines."""
    environment, printed = {**os.environ, "DEDUP_SOURCE_URI": server.uri}, b""
    for name, *options in steps:
        command = [*commands.program, name, *options, "-c", str(commands.settings)]
        printed = subprocess.run(command, input=printed, env=environment, stdout=-1, check=True).stdout
    return printed.decode().splitlines()


def browse(name: str, dropped: dict[Any, Row], server: Server, commands: Commands) -> tuple[object, ...]:
    """Return results of `list`, `group` and `restore -`, each next to the ledger's number."""
    near = sum(row["reason"] == "near" for row in dropped.values())
    listed = len(piped(server, commands, ("list", "--json")))
    groups = Counter(str(row["keeper"]) for row in dropped.values()).most_common(GROUPS)
    shown = [len(piped(server, commands, ("group", keeper, "--json"))) - 1 for keeper, _ in groups]
    put_back = piped(server, commands, ("list", "--ids", "--reason", "near"), ("restore", "-", "--json"))
    restored = len(json.loads(put_back[-1])["restored"])
    with MongoClient[Row](server.uri) as client:
        there = client[DATABASE].unique.count_documents({"_id": {"$in": list(dropped)}})
    sizes = sum(size for _, size in groups)
    return name, listed, len(dropped), sum(shown), sizes, restored, near, there


def compare(texts: TextSet, server: Server, commands: Commands) -> tuple[object, ...]:
    """Print the row of one set, and return its row of the second table."""
    with MongoClient[Row](server.uri) as client:
        fill(texts.records, client)
        commands.run("backfill")
        kept = [one["_id"] for one in client[DATABASE].unique.find({}, {"_id": 1}).sort("_id", 1)]
        dropped = {one["_id"]: one for one in client[DATABASE]["unique.dedup.dropped"].find()}
    ours, matches, seconds = added(texts)
    raw = dict(zip(texts.ids, texts.raw, strict=True))
    lines = (json.dumps({"_id": key, "data": raw[key]}, ensure_ascii=False) for key in dropped)
    answers, rate = asked(server, commands, lines, len(dropped))
    others = [one for one in answers if one["keeper"] != dropped[one["id"]]["keeper"]]
    wrong = [one for one in others if not one["keeper"] or one["distance"] > dropped[one["id"]]["distance"]]
    is_same = sorted(map(str, ours)) == sorted(map(str, kept))
    ours_told = ("equal" if is_same else "NOT equal", apart(matches, dropped), len(texts.ids) / seconds)
    find_told = (len(answers), len(others), len(wrong), rate)
    row(texts.name, len(texts.ids), len(kept), *ours_told, *find_told)
    return browse(texts.name, dropped, server, commands)


def main() -> None:
    """Run the comparison and print its table."""
    parser = arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="one set")
    args = parser.parse_args()
    table(
        "set", "records", "kept", "kept set", "decided apart", "`add_all`, texts/CPU s",
        "asked", "another keeper", "and no nearer", "`find`, texts/CPU s",
    )  # fmt: skip
    with open_server() as server, job_commands(server) as commands:
        sets = args.sets[: 1 if args.quick else None]
        browsed = [compare(TextSet.read(args.data, name), server, commands) for name in sets]
    print()
    table(
        "set", "listed", "the ledger's", f"in the {GROUPS} largest groups", "the ledger's",
        "restored", "near, in the ledger", "of all dropped in the target",
    )  # fmt: skip
    for cells in browsed:
        row(*cells)


if __name__ == "__main__":
    main()
