"""The decisions about all guards of an incarnation: successors, and the proof that nothing is left (docs/fencing.md 3.8)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_executor.decide.guard_set import (
    CloseSlots,
    ControlClosed,
    Effect,
    Event,
    GuardSetState,
    KillOrphans,
    LossReported,
    RecordEmpty,
    ReportLoss,
    SlotsEnded,
    StartSlot,
    StartWitness,
    SupervisorTick,
    begin,
    decide,
)


def after(state: GuardSetState, *events: Event) -> tuple[GuardSetState, list[Effect]]:
    """The state after these events, and the effects of the last one."""
    effects: Sequence[Effect] = ()
    for event in events:
        state, effects = decide(state, event)
    return state, list(effects)


def test_every_slot_is_started() -> None:
    state, effects = begin(2)
    assert list(effects) == [StartSlot(0, 0), StartSlot(1, 0)]
    assert state.running == {0, 1}


def test_a_successor_starts_when_the_executor_has_the_loss() -> None:
    state, effects = after(begin(2)[0], SlotsEnded((1,)))
    assert effects == [KillOrphans(), ReportLoss(1, 1)]
    state, effects = after(state, LossReported(1, delivered=False))
    assert effects == []
    state, effects = after(state, SupervisorTick())
    assert effects == [ReportLoss(1, 1)]
    state, effects = after(state, LossReported(1, delivered=True))
    assert effects == [StartSlot(1, 1)]
    assert (state.losses, state.running, state.unreported) == ((0, 1), {0, 1}, ())
    assert after(state, SlotsEnded((1,)))[1] == [KillOrphans(), ReportLoss(1, 2)]


def test_emptiness_is_recorded_after_the_last_slot() -> None:
    state, effects = after(begin(2)[0], ControlClosed())
    assert effects == [CloseSlots()]
    state, effects = after(state, SlotsEnded((0,)))
    assert effects == []
    assert after(state, SlotsEnded((1,)))[1] == [KillOrphans(), StartWitness(proven=True), RecordEmpty()]


def test_no_successor_after_the_end_of_the_executor() -> None:
    state, effects = after(begin(1)[0], SlotsEnded((0,)), ControlClosed())
    assert effects == [CloseSlots(), KillOrphans(), StartWitness(proven=True), RecordEmpty()]
    assert after(state, LossReported(0, delivered=True))[1] == []


def test_no_witness_of_an_orderly_end() -> None:
    assert after(begin(1)[0], ControlClosed(in_order=True), SlotsEnded((0,)))[1] == [KillOrphans(), RecordEmpty()]


KILLED = SlotsEnded((0,), killed=(0,))


@pytest.mark.parametrize(
    ("events", "proven"),
    [
        ([ControlClosed(), KILLED, SlotsEnded((1,))], False),
        ([KILLED, LossReported(0, delivered=False), ControlClosed(), SlotsEnded((1,))], False),
        ([KILLED, LossReported(0, delivered=True), ControlClosed(), SlotsEnded((0, 1))], True),
        ([KILLED, LossReported(0, delivered=True), ControlClosed(), SlotsEnded((0, 1), killed=(0,))], False),
        ([KILLED, LossReported(0, delivered=True), KILLED, ControlClosed(), SlotsEnded((1,))], False),
        ([SlotsEnded((0,)), ControlClosed(), SlotsEnded((1,))], True),
    ],
    ids=[
        "killed after the executor",
        "killed, and the executor died before it could be told",
        "killed and replaced in time",
        "its successor did not end in order",
        "killed again",
        "the slot saw the end of the executor first",
    ],
)
def test_a_witness_attests_only_when_each_guard_ended_in_order_or_its_loss_was_reported(
    events: list[Event], proven: bool
) -> None:
    effects = after(begin(2)[0], *events)[1]
    assert effects[-3:] == [KillOrphans(), StartWitness(proven=proven), RecordEmpty()]


@given(st.integers(1, 3), st.lists(st.one_of(st.integers(0, 2), st.booleans(), st.just("tick")), max_size=30))
def test_any_course_of_events(slots: int, steps: list[int | bool | str]) -> None:
    """Numbers are slots whose supervisor dies; booleans are whether the executor reads from now on."""
    state, started = begin(slots)
    alive = {effect.slot for effect in started if isinstance(effect, StartSlot)}
    reads, recorded, cleared = True, 0, True

    def deliver(event: Event) -> None:
        nonlocal state, recorded, cleared
        state, effects = decide(state, event)
        for effect in effects:
            match effect:
                case KillOrphans():
                    cleared = True
                case ReportLoss(slot=slot, losses=losses):
                    assert cleared and slot not in alive and losses == state.losses[slot] + 1
                    deliver(LossReported(slot, delivered=reads))
                case StartSlot(slot=slot, losses=losses):
                    assert cleared and slot not in alive and losses == state.losses[slot]
                    alive.add(slot)
                case StartWitness():
                    assert cleared and not alive and not recorded
                case RecordEmpty():
                    assert cleared and not alive
                    recorded += 1

    for step in steps:
        if isinstance(step, bool):
            reads = step
        elif step == "tick":
            deliver(SupervisorTick())
        elif step in alive:
            alive.discard(int(step))
            cleared = False
            deliver(SlotsEnded((int(step),)))
        assert alive == state.running
    reads = True
    deliver(SupervisorTick())
    assert alive == set(range(slots)), "every slot has its supervisor again"
    deliver(ControlClosed())
    for slot in sorted(alive):
        assert recorded == 0
        alive.discard(slot)
        cleared = False
        deliver(SlotsEnded((slot,)))
    assert recorded == 1
