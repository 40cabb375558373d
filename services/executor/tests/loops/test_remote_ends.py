"""Outcomes wait until nothing of their attempts is left in the cluster, as far as it can be known."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from toban_domain.outcome import AttemptKey, Outcome, OutcomeKind
from toban_executor.decide.models import Report
from toban_executor.loops.remote_ends import RemoteEnds
from toban_testing.clock import FakeClock

KEY, OTHER = AttemptKey(1, 2), AttemptKey(3, 4)


class Cluster:
    """Says what is left, or that it does not know."""

    def __init__(self) -> None:
        self.left: dict[AttemptKey, list[str]] | None = {KEY: ["pod a"]}
        self.looks: list[list[AttemptKey]] = []

    def remove(self, keys: Collection[AttemptKey]) -> Mapping[AttemptKey, list[str]]:
        self.looks.append(list(keys))
        if self.left is None:
            raise OSError("the API does not respond")
        return self.left


def made() -> tuple[Cluster, FakeClock, list[AttemptKey], RemoteEnds]:
    cluster, clock, released = Cluster(), FakeClock(), list[AttemptKey]()
    return (
        cluster,
        clock,
        released,
        RemoteEnds(cluster=cluster, settle=30.0, release=released.append, wake=lambda: None, clock=clock),
    )


def report(key: AttemptKey = KEY, **fields: int) -> Report:
    end = Outcome(kind=OutcomeKind.CANCELED, finished_at=datetime(2026, 11, 21, tzinfo=UTC), **fields)
    return Report(key=key, seq=2, outcome=end)


async def test_it_is_released_once_nothing_is_left() -> None:
    cluster, _, released, ends = made()
    ends.hold(report(exit_code=143))
    assert (await ends.run_once(), released) == (0, [])
    cluster.left = None
    assert (await ends.run_once(), released) == (0, []), "not known is not gone"
    cluster.left = {}
    assert (await ends.run_once(), released) == (1, [KEY])
    assert (await ends.run_once(), cluster.looks) == (0, [[KEY]] * 3)


async def test_one_look_is_for_all_that_wait() -> None:
    cluster, _, released, ends = made()
    for key in (KEY, OTHER):
        ends.hold(report(key, exit_code=143))
    assert (await ends.run_once(), released) == (1, [OTHER])
    assert cluster.looks == [[KEY, OTHER]]


async def test_what_a_killed_program_had_sent_may_still_be_carried_out() -> None:
    cluster, clock, released, ends = made()
    cluster.left = {}
    ends.hold(report(signal=9))
    await clock.advance(29)
    assert (await ends.run_once(), released) == (0, [])
    await clock.advance(1)
    assert (await ends.run_once(), released) == (1, [KEY])
