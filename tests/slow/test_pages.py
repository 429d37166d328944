"""The commands of README and docs, run in the order of each page, succeed and print what the page says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient

from scripts.dev.local_mongod import LocalMongod
from scripts.dev.run_tutorial import agrees
from tests.support.doc_pages import NEW_PAGES, Desk, Part, parts, run_page
from tests.support.job import ROOT
from tests.support.warm_program import WarmProgram

pytestmark = pytest.mark.longest

BACKFILL = "dedup-job backfill -c shop.toml"
FERRY = (
    "The ferry to the islands leaves at nine every morning from the old pier, and comes back in the evening"
)
MARKET = (
    "The farmers' market opens on Saturday with the first tomatoes of the year, and closes when they are sold"
)
INIT = "shop\npages\nbody\n\n-\n"  # the answers to the questions of `init`
YES = "y\n" * 5
LOST_ARCHIVE = "needs an archive that was lost; tests/integration/test_sweep.py loses one"

# Lines that are not run, by page, and why.
LEFT_OUT = {
    "README.md": {"make": "makes environments; .ci/run and tests/slow/test_wheel.py do so"},
    "docs/explanation/performance.md": {"python -m scripts.bench": "benchmarks"},
    "docs/how-to/install.md": {
        "pipx|python3 -m (venv|pip)|~/dedup": "installs; tests/slow/test_wheel.py installs a wheel"
    },
    "docs/how-to/recover-from-exit-codes.md": {"dedup-job sweep .*--moved": LOST_ARCHIVE},
    "docs/how-to/run-in-docker.md": {".": "needs Docker"},
    "docs/how-to/run-in-kubernetes.md": {".": "needs a cluster"},
    "docs/how-to/run-with-systemd.md": {".": "needs systemd and root"},
    "docs/how-to/use-spark.md": {"python -m venv|echo|export|spark-submit": "needs a cluster"},
    "docs/how-to/without-a-second-copy.md": {"dedup-job sweep .*--moved": LOST_ARCHIVE},
    "docs/reference/commands.md": {
        "NUMBA_CACHE_DIR": "compiles for a minute; tests/slow/test_wheel.py does so",
        "0 2 ": "a line of crontab; tests/slow/test_cron.py runs one",
    },
}
# Outputs that the sample of the tutorial does not give, by page: how they begin, and what they come from.
OTHER_OUTPUTS = {
    "docs/how-to/choose-the-threshold.md": {
        "min_similarity = 0.86": "forty labels of a person",
        "4,12,different": "a file of labels",
        "tune: 5,000": "5,000 records",
    },
    "docs/how-to/estimate-a-backfill.md": {"estimate: a": "a machine with two workers"},
    "docs/how-to/preview-a-collection.md": {"report (backfill)": "18,082 records"},
    "docs/how-to/read-from-a-secondary.md": {
        "the source server: remove": "another connection string",
        "the source: no secondary": "a set without secondaries that fit",
    },
    "docs/how-to/spare-a-busy-server.md": {"": "a secondary that lags"},
    "docs/reference/json.md": {'{"run"': "is one line, here wrapped"},
    "docs/how-to/without-a-second-copy.md": {"{ _id: 5": "a record"},
    "docs/how-to/watch-a-run.md": {"  at work ": "a run in progress", '{"run"': "a run in progress"},
}


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def has_commands(page: Path) -> bool:
    found = list(parts(page.read_text("utf-8")))
    return any((part.kind == "sh" and "dedup-job " in part.text) or part.kind == "js" for part in found)


# The tutorial has a test of its own, as has each command of the reference below.
ELSEWHERE = ("tutorial.md", "reference/commands.md")
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not shown(page).endswith(ELSEWHERE) and has_commands(page)
]
COMMANDS = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8").split("\n## ")[1:]


def is_left_out(page: str) -> Callable[[str], bool]:
    """Return a function that says whether a line of a page is left out."""
    return lambda line: any(re.match(start, line) for start in LEFT_OUT.get(page, {}))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalMongod]:
    with LocalMongod(auth=True) as server:
        yield server


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProgram]:
    with WarmProgram(tmp_path_factory.mktemp("bin")) as program:
        yield program


@pytest.fixture
def desk(
    server: LocalMongod, program: WarmProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    monkeypatch.setenv("DEDUP_SOURCE_URI", server.uri)
    monkeypatch.delenv("DEDUP_TARGET_URI", raising=False)
    with MongoClient[dict[str, Any]](server.uri) as client:
        yield Desk(server, client, program, tmp_path)


def after_a_backfill(desk: Desk) -> None:
    desk.run(BACKFILL)


def after_a_restore(desk: Desk) -> None:
    desk.run(f"{BACKFILL}; dedup-job restore -c shop.toml 12")


def with_new_settings(desk: Desk) -> None:
    """Restore a record, and write settings with a new target."""
    after_a_restore(desk)
    settings = (desk.folder / "shop.toml").read_text("utf-8").replace("pages_unique", "pages_unique_2")
    (desk.folder / "new.toml").write_text(settings, "utf-8")


def after_the_tutorial(desk: Desk) -> None:
    after_a_restore(desk)
    desk.run("python -m scripts.bench.load_sample docs/sample/new-pages.jsonl; dedup-job run -c shop.toml")


def with_a_reference(desk: Desk) -> None:
    shop = desk.client["shop"]
    shop["pages"].delete_many({})
    shop["pages"].insert_many(
        [{"_id": 1, "body": f"{FERRY} when the wind is low."}, {"_id": 2, "body": MARKET}]
    )
    shop["questions"].insert_one({"_id": "q1", "question": f"{FERRY} with the wind."})
    shutil.copy(desk.folder / "shop.toml", desk.folder / "clean.toml")
    (desk.folder / "new.jsonl").write_text('{"body": "a text"}\n')


def with_boilerplate(desk: Desk) -> None:
    page = {"$concat": ["<nav>Home</nav><article>", {"$toString": "$body"}, "</article>"]}
    desk.client["shop"]["pages"].update_many({}, [{"$set": {"body": page}}])


def with_labels(desk: Desk) -> None:
    after_a_backfill(desk)
    (desk.folder / "labels.jsonl").write_text('{"id1": 4, "id2": 12, "label": "different"}\n')


def with_edits(desk: Desk) -> None:
    after_a_backfill(desk)
    pages = desk.client["shop"]["pages"]
    pages.update_one({"_id": 1}, {"$set": {"body": FERRY}})
    pages.update_one({"_id": 3}, {"$set": {"title": "Maps"}})
    pages.delete_one({"_id": 8})


def without_the_setting(desk: Desk) -> None:
    """Take back the setting above: the page counts what it would change."""
    desk.apply('[match]\nnumbers = "ignore"\n')


def with_users(desk: Desk) -> None:
    """Write their connection strings; a part of the page made them."""
    for name in ("source", "target"):
        file = desk.folder / f"{name}.uri"
        file.touch(mode=0o600)
        file.write_text(desk.server.uri_as(f"dedup_{name}", "secret"))


def with_users_and_a_backfill(desk: Desk) -> None:
    """Make the users of another page, and run the backfill."""
    page = (ROOT / "docs" / "how-to" / "grant-rights.md").read_text("utf-8")
    desk.run_js(next(part.text for part in parts(page) if part.kind == "js"))
    after_a_backfill(desk)


def with_longer_copies(desk: Desk) -> None:
    pages = desk.client["shop"]["pages"]
    pages.delete_many({})
    text = f"{FERRY}. Tickets are sold on board, in cash only. Nobody spoke"
    pages.insert_many([{"_id": 1, "body": f"{text[:-15]}."}, {"_id": 2, "body": f"{text}."}])
    pages.insert_one({"_id": 3, "body": MARKET})
    after_a_backfill(desk)
    pages.insert_one({"_id": 4, "body": f"{text} until the bell rang."})


def with_two_sites(desk: Desk) -> None:
    pages = desk.client["shop"]["pages"]
    pages.delete_many({})
    for number, (site, text) in enumerate(
        [
            ("a", FERRY),
            ("b", FERRY),
            ("a", MARKET),
            ("a", FERRY.replace("every", "each")),
            ("b", MARKET),
            ("b", MARKET.replace("first", "last")),
        ],
        start=1,
    ):
        pages.insert_one({"_id": number, "site": f"{site}.example", "body": text})


def with_a_filled_target(desk: Desk) -> None:
    desk.client["shop"]["pages_unique"].insert_one({"_id": "older", "body": FERRY})


def with_new_records(desk: Desk) -> None:
    after_a_backfill(desk)
    shutil.copy(NEW_PAGES, desk.folder / "new.jsonl")


def for_the_reference(desk: Desk) -> None:
    """Prepare the records, files and runs that examples of the command line name."""
    pages = desk.client["shop"]["pages"]
    first = pages.find_one({"_id": 1})
    assert first
    ids = (ObjectId("6650c1d2a1b2c3d4e5f60718"), ObjectId("6650c1d2a1b2c3d4e5f60723"), 42)
    pages.insert_many([first | {"_id": each} for each in ids])
    with_new_records(desk)
    for name in ("stricter.toml", "new.toml"):
        shutil.copy(desk.folder / "shop.toml", desk.folder / name)
    (desk.folder / "labels.csv").write_text("4,12,different\n1,5,same\n")


BEFORE = {
    "against-a-reference-collection": with_a_reference,
    "boilerplate": with_boilerplate,
    "change-settings-later": with_new_settings,
    "check-a-target": after_a_restore,
    "choose-the-threshold": with_labels,
    "edits-and-deletions": with_edits,
    "export-groups": after_a_backfill,
    "find-out-why": after_a_backfill,
    "grant-rights": with_users,
    "keep-the-newest": with_longer_copies,
    "match-new-texts": with_new_records,
    "numbers": without_the_setting,
    "only-within-a-site": with_two_sites,
    "put-records-back": after_a_backfill,
    "recover-from-exit-codes": after_a_backfill,
    "replace-the-source": with_users_and_a_backfill,
    "review-before-dropping": after_a_backfill,
    "start-with-a-filled-target": with_a_filled_target,
    "undo-a-run": after_a_backfill,
    "watch-a-run": after_the_tutorial,
}
TYPED = {"README": INIT, "index": INIT, "preview-a-collection": INIT, "settings": INIT}


def here(page: str, desk: Desk) -> str:
    """Put the server and the folder of a test into a page, and this machine in place of a cluster."""
    for there, name in {
        "spark://host:7077": "local[1]",
        "hdfs://host/dedup/shop": f"{desk.folder}/stages",
        "partitions = 2000": "partitions = 2",
        "mongodb://127.0.0.1:27017/": desk.server.uri,
        "/etc/dedup-job/": f"{desk.folder}/",
        "/var/lib/prometheus/node-exporter/": f"{desk.folder}/",
        "clean.toml": "shop.toml",
    }.items():
        page = page.replace(there, name)
    return page


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_page_can_be_followed(page: Path, desk: Desk) -> None:
    name = shown(page)
    prepare = BEFORE.get(page.stem, lambda desk: None)
    typed = TYPED.get(page.stem, YES)
    text = here(page.read_text("utf-8"), desk)
    for output, printed in run_page(text, desk, lambda: prepare(desk), typed, is_left_out(name)):
        if not output.startswith(tuple(OTHER_OUTPUTS.get(name, ()))):
            assert agrees(f"...\n{output}...\n", printed), f"the page has\n{output}\nnow it prints\n{printed}"


@pytest.mark.parametrize("section", COMMANDS, ids=lambda section: section.partition("\n")[0])
def test_the_examples_of_a_command_can_be_run(section: str, desk: Desk) -> None:
    lines = [line for line in re.findall(r"^    (.*)", section, re.MULTILINE) if "[OPTIONS]" not in line]
    assert lines
    skip = is_left_out("docs/reference/commands.md")
    for_the_reference(desk)
    desk.run(
        here("\n".join(line for line in lines if not skip(line)), desk), INIT if "init" in lines[0] else YES
    )


def test_what_is_left_out_is_on_its_page() -> None:
    for page, starts in LEFT_OUT.items():
        text = (ROOT / page).read_text("utf-8")
        assert [start for start in starts if not re.search(f"(^ *|`)({start})", text, re.MULTILINE)] == []
    for page, outputs in OTHER_OUTPUTS.items():
        found = [part.text for part in parts((ROOT / page).read_text("utf-8")) if part.kind == "output"]
        assert [one for one in outputs if not any(text.startswith(one) for text in found)] == []


def test_every_kind_of_part_is_found() -> None:
    page = "# A\n\n```sh\nls\n```\n\n    out\n\n      put\n\nSee `dedup-job run\n-c a`.\n"
    assert list(parts(page)) == [
        Part("sh", "ls\n"),
        Part("output", "out\n\n  put\n"),
        Part("sh", "dedup-job run -c a\n"),
    ]
