"""The archive lease as its holder keeps it: renewed while it works, freed at the end or before the next take."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_fencing.archive_lease import RENEW_SECONDS, ArchiveLease

AWAY = TobanError(ErrorCode.UNAVAILABLE, "PostgreSQL is away")


@dataclass
class Row:
    """Answers of the row, in order; the calls that came."""

    epoch: int = 0
    calls: list[str] = field(default_factory=list)
    release_errors: list[TobanError] = field(default_factory=list)
    renew_errors: list[TobanError] = field(default_factory=list)

    async def take(self) -> int | None:
        self.epoch += 1
        self.calls.append(f"take {self.epoch}")
        return self.epoch

    async def renew(self, epoch: int) -> None:
        self.calls.append(f"renew {epoch}")
        if self.renew_errors:
            raise self.renew_errors.pop(0)

    async def release(self, epoch: int, *, summary: str, error: str) -> None:
        self.calls.append(f"release {epoch} {summary}{error}")
        if self.release_errors:
            raise self.release_errors.pop(0)


@dataclass
class Ticks:
    """A sleep that returns when the test says so."""

    slept: list[float] = field(default_factory=list)
    next: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.next.wait()
        self.next.clear()


def lease_of(row: Row, ticks: Ticks, lease_seconds: float = 30.0, errors: list[str] | None = None) -> ArchiveLease:
    said: list[str] = errors if errors is not None else []
    return ArchiveLease(
        row=row,
        lease_seconds=lease_seconds,
        sleep=ticks.sleep,
        on_renew_error=lambda error, _seconds: said.append(error.message),
    )


async def until(condition: Callable[[], bool]) -> None:
    """The loop's other callbacks run until it holds; a bound keeps a defect from hanging the test."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


async def test_it_is_renewed_while_the_body_runs_and_not_after() -> None:
    row, ticks, errors = Row(renew_errors=[AWAY]), Ticks(), list[str]()
    lease = lease_of(row, ticks, errors=errors)
    async with lease.renewed(1):
        for count in (1, 2):
            await until(lambda count=count: len(ticks.slept) == count)
            ticks.next.set()
            await until(lambda count=count: row.calls.count("renew 1") == count)
    assert (row.calls, errors, ticks.slept[0]) == (["renew 1", "renew 1"], ["PostgreSQL is away"], RENEW_SECONDS)
    ticks.next.set()
    await asyncio.sleep(0)
    assert len(row.calls) == 2


async def test_a_lease_that_another_archiver_took_is_not_renewed_again() -> None:
    row, ticks = Row(renew_errors=[FencedOut(1, of="archiver")]), Ticks()
    async with lease_of(row, ticks, lease_seconds=4.0).renewed(1):
        await until(lambda: len(ticks.slept) == 1)
        ticks.next.set()
        await until(lambda: row.calls == ["renew 1"])
        ticks.next.set()
        await asyncio.sleep(0)
    assert (row.calls, ticks.slept) == (["renew 1"], [1.0])


async def test_what_an_outage_kept_from_being_freed_is_freed_before_the_next_take() -> None:
    row = Row(release_errors=[AWAY])
    lease = lease_of(row, Ticks())
    epoch = await lease.take()
    assert epoch == 1
    with pytest.raises(TobanError, match="PostgreSQL is away"):
        await lease.release(epoch, summary="done", error="")
    assert await lease.take() == 2
    assert row.calls == ["take 1", "release 1 done", "release 1 done", "take 2"]
    assert await lease.take() == 3
    assert row.calls[-1] == "take 3", "freed once"


async def test_a_lease_that_another_archiver_took_is_not_freed_again() -> None:
    row = Row(release_errors=[FencedOut(1, of="archiver")])
    lease = lease_of(row, Ticks())
    assert await lease.take() == 1
    with pytest.raises(FencedOut):
        await lease.release(1, summary="", error="")
    await lease.take()
    assert row.calls == ["take 1", "release 1 ", "take 2"]
