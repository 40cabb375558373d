"""The scan for due schedules reads no column in vain."""

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
