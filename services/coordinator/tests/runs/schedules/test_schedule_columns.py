"""The scan for due schedules reads no column and no row in vain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from toban_coordinator.store.schedules import schedules
from toban_store.tx import Tx, tx


class Noted(dict[str, Any]):
    """A row that notes which of its columns are read."""

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(row)
        self.read: set[str] = set()

    def __getitem__(self, column: str) -> Any:
        self.read.add(column)
        return super().__getitem__(column)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Noted]]:
    """Every row that a transaction has read."""
    seen: list[Noted] = []
    fetch_all = Tx.fetch_all

    async def noting(self: Tx, *arguments: Any) -> list[Noted]:
        found = [Noted(row) for row in await fetch_all(self, *arguments)]
        seen.extend(found)
        return found

    monkeypatch.setattr(Tx, "fetch_all", noting)
    yield seen


@pytest.mark.seed(217)
async def test_the_scan_reads_only_columns_that_it_needs(world: Any, make: Any, desk: Any, rows: list[Noted]) -> None:
    await world.apply(make.job(), make.schedule())
    await desk.passed(10)
    rows.clear()
    async with tx(world.pool) as t:
        now = world.now()
        due = await schedules.due(t, now, now + timedelta(seconds=1), limit=10)
    assert [one.spec.name for one in due] == ["often"]
    assert [set(row) - row.read for row in rows] == [set()]


async def test_a_page_of_one_second_is_read_from_where_the_one_before_ended(world: Any, make: Any) -> None:
    await world.apply(make.job(), make.schedule())
    await world.sql(
        "INSERT INTO scheduler.schedules OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(s, jsonb_build_object("
        " 'id', s.id + n, 'name', 's' || n))).* FROM scheduler.schedules s, generate_series(1, 2999) n"
    )
    await world.sql("ANALYZE scheduler.schedules")
    [middle] = await world.sql("SELECT next_run_at, min(id) + 1500 AS id FROM scheduler.schedules GROUP BY 1")
    later = middle["next_run_at"] + timedelta(seconds=1)
    places = {"now": later, "until": later, "limit": 100, "after_slot": middle["next_run_at"], "after_id": middle["id"]}
    async with tx(world.pool) as t:
        plan = f"EXPLAIN (ANALYZE, FORMAT JSON) {schedules._sql.due}"
        [row] = await t.fetch_all(plan, places, prepare=False)
    [scan] = [one for one in nodes_of(row["QUERY PLAN"][0]["Plan"]) if one.get("Relation Name") == "schedules"]
    assert scan["Actual Rows"] == 100 and not scan.get("Rows Removed by Filter"), scan


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(inner for part in node.get("Plans", []) for inner in nodes_of(part))]
