"""What is written to a temporary file comes back in order, and a full disk is named."""

from __future__ import annotations

import pytest
from bson import encode

from dedup_job import temporary_ids_and_tables
from dedup_job.errors import StorageFull
from dedup_job.temporary_ids_and_tables import IdList, TemporaryTables

IDS = [encode({"_id": value}) for value in (7, "a", {"n": 1.0}, "b" * 3_000, b"\0")]


@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_a_list_of_ids_gives_them_back_in_order(monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(temporary_ids_and_tables, "IN_MEMORY", in_memory)
    ids = IdList()
    ids.extend(IDS[:2])
    assert list(ids) == IDS[:2]
    ids.extend(IDS[2:])
    assert (len(ids), list(ids), list(ids.pages(2))) == (5, IDS, [IDS[:2], IDS[2:4], IDS[4:]])


def test_tables_find_any_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_ids_and_tables, "AT_ONCE", 2)
    tables = TemporaryTables("CREATE TABLE ids (id BLOB PRIMARY KEY, number INTEGER)")
    tables.fill("INSERT INTO ids VALUES (?,?)", [(raw_id, number) for number, raw_id in enumerate(IDS[:4])])
    found = tables.fetch_among("SELECT id, number FROM ids WHERE id IN", IDS)
    assert dict(found) == {raw_id: number for number, raw_id in enumerate(IDS[:4])}
    assert list(tables.fetch_among("SELECT id FROM ids WHERE id IN", [])) == []


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_ids_and_tables, "IN_MEMORY", 1)
    with open("/dev/full", "r+b", buffering=0) as full:
        monkeypatch.setattr(temporary_ids_and_tables, "SpooledTemporaryFile", lambda size: full)
        with pytest.raises(StorageFull, match="TMPDIR"):
            IdList().extend(IDS)
