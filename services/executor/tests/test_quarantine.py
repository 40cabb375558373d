"""What is refused stays with a real executor process: outcomes and log lines, also over a restart, until they are stored."""

from typing import Any

from toban_testing.fake_coordinator import EPOCH


def named(beat: Any) -> list[tuple[int, str]]:
    return [(one.key.run_id, one.message) for one in beat.quarantined]


async def test_a_refused_outcome_is_named_and_sent_again_after_a_restart(world: Any) -> None:
    world.coordinator.refusing = "no partition of relation"
    [answer] = await world.start(world.order(1, "/bin/true"))
    assert answer.accepted
    await world.outcome(1)
    await world.until(lambda: named(world.coordinator.beats[-1]) == [(1, "no partition of relation")])
    beat = world.coordinator.beats[-1]
    assert beat.names_all and not beat.held and not beat.unanswered
    world.executor.stop()
    world.coordinator.reports.clear()
    world.executor.start()
    await world.granted(incarnations=2)
    assert world.coordinator.registered[-1].reports[0].key.run_id == 1
    await world.until(lambda: named(world.coordinator.beats[-1]) == [(1, "no partition of relation")])
    # A change of the settings may be the repair: it is sent again at once.
    world.coordinator.refusing = ""
    sent = len(world.coordinator.reports)
    world.coordinator.settings.set(heartbeat_interval_seconds=0.3)
    await world.until(lambda: len(world.coordinator.reports) > sent and not named(world.coordinator.beats[-1]))


async def test_lines_that_an_archiver_refuses_are_stored_once_it_accepts_them(world: Any) -> None:
    world.archiver.refusing = "TICKET_INVALID"
    [answer] = await world.start(world.order(2, "/bin/sh", "-c", "echo one; echo two"))
    assert answer.accepted
    await world.outcome(2)
    await world.until(lambda: world.archiver.refused >= 2)
    assert world.archiver.text((2, EPOCH | 2)) == []
    world.archiver.refusing = ""
    world.coordinator.settings.set(heartbeat_interval_seconds=0.3)
    await world.until(lambda: world.archiver.text((2, EPOCH | 2)) == [b"one", b"two"])
    await world.until(lambda: world.archiver.seals.get((2, EPOCH | 2)) == 2)
