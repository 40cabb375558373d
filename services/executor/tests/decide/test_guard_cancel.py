"""What a guard decides when a job with `on_lease_loss: freeze` is asked to end by itself: before its freeze, in it, and after it."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard import decide, next_due
from toban_executor.decide.guard_types import (
    Cancel,
    CheckTree,
    CloseLeasePipe,
    Effect,
    Event,
    FreezeChecked,
    FreezeTree,
    NotifyCancel,
    ProcessEnd,
    Received,
    ReportEnd,
    SetDeadline,
    SignalTree,
    Spawn,
    StepStarted,
    ThawTree,
    Tick,
    TreeChecked,
    TreeSignal,
    TreeSignaled,
)
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.decide.slot_state import SlotState
from toban_fencing.executor_lease import Instant

START = Instant(1000.0, 5000.0)
LEASE = 10.0
TERMINATE, KILL = SignalTree(TreeSignal.TERMINATE), SignalTree(TreeSignal.KILL)
TERMINATED, KILLED = TreeSignaled(TreeSignal.TERMINATE), TreeSignaled(TreeSignal.KILL)
FROZEN = FreezeChecked(frozen=True)


def run(state: SlotState, *events: tuple[float, Event]) -> tuple[SlotState, list[Effect]]:
    """The state after events at so many seconds after START, and the effects of the last one."""
    effects: Sequence[Effect] = ()
    for seconds, event in events:
        state, effects = decide(state, event, START.plus(seconds))
    return state, [effect for effect in effects if type(effect).__name__ != "DropAcked"]


def running(*, freeze_max: float = 300.0, cancelable: bool = True) -> SlotState:
    """An attempt whose lease ends after LEASE seconds, and that has reported its start."""
    step = StepOrder(type="command", argv=("x",), cancelable=cancelable)
    order = StartOrder(key=AttemptKey(7, 1), steps=(step,), on_lease_loss="freeze", grace_seconds=1.0)
    deadline = START.plus(LEASE)
    spawn = Spawn(order=order, programs=("",), env={}, deadline=deadline, lease_grace=2.0, freeze_max=freeze_max)
    events = (0.0, Received("ours", 0, spawn)), (0.0, StepStarted(99)), (0.1, Tick())
    return run(SlotState("ours"), *events)[0]


def frozen(**fields: Any) -> SlotState:
    return run(running(**fields), (LEASE, Tick()), (LEASE, FROZEN))[0]


def grant(at: float) -> Received:
    """A grant for a minute, of a heartbeat sent at `at`."""
    return Received("ours", 0, SetDeadline(token=1, deadline=START.plus(at + 60), thaw=True))


def ask(grace: float = 5.0, **fields: Any) -> Received:
    return Received("ours", 0, Cancel(token=1, reason="asked", grace=grace, **{"cooperative": True, **fields}))


def test_a_cooperative_cancel_does_not_let_a_frozen_job_run() -> None:
    """It gets no signal either, however long its grace is over."""
    state, effects = run(frozen(), (20.0, ask()))
    assert effects == [NotifyCancel("asked")]
    state, effects = run(state, (40.0, Tick()))
    assert effects == [FreezeTree()]


def test_its_grace_begins_with_the_thaw() -> None:
    state, _ = run(frozen(), (20.0, ask(5.0)))
    state, effects = run(state, (30.0, grant(29.9)))
    assert ThawTree() in effects
    state, effects = run(state, (30.0, TreeChecked(empty=False)), (34.9, Tick()))
    assert effects == []
    assert state.attempt and next_due(state, START.plus(34.9)) == pytest.approx(START.boot + 35.0)
    state, effects = run(state, (35.1, Tick()))
    assert effects == [TERMINATE]
    state, _ = run(state, (35.1, TERMINATED))
    assert run(state, (40.0, Tick()))[1] == [CheckTree()]
    state, effects = run(state, (40.2, Tick()))
    assert effects == [KILL]
    _, effects = run(state, (40.2, KILLED), (40.2, TreeChecked(main=ProcessEnd(signal=9), empty=True)))
    assert isinstance(effects[-1], ReportEnd)
    assert (effects[-1].end.cause, effects[-1].end.reason) == ("cancel", "asked")


def test_a_grace_that_had_begun_before_the_freeze_goes_on_after_it() -> None:
    state, _ = run(running(), (8.0, ask(5.0)), (LEASE, Tick()), (LEASE, FROZEN), (30.0, grant(29.9)))
    assert run(state, (32.9, Tick()))[1] == []
    assert run(state, (33.1, Tick()))[1] == [TERMINATE]


def test_a_frozen_job_that_is_being_canceled_is_killed_at_the_limit_of_the_freezer() -> None:
    state, _ = run(frozen(freeze_max=30.0), (20.0, ask(5.0)))
    assert run(state, (40.0, Tick()))[1] == [CloseLeasePipe(), KILL]


def test_an_end_that_is_not_known_is_that_of_the_cancel() -> None:
    """The job was asked to end, and no process of it is left."""
    _, effects = run(running(), (1.0, ask()), (2.0, TreeChecked(empty=True)))
    assert isinstance(effects[-1], ReportEnd)
    assert (effects[-1].end.cause, effects[-1].end.reason) == ("cancel", "asked")


def test_an_operators_kill_of_a_frozen_job_is_sigkill() -> None:
    state, _ = run(frozen(), (20.0, ask()), (21.0, ask(force=True, cooperative=False)))
    assert run(state, (21.0, Tick()))[1] == [KILL]


def test_a_protected_step_that_was_frozen_still_ends_first() -> None:
    state, _ = run(frozen(cancelable=False), (20.0, ask(1.0)), (30.0, grant(29.9)))
    assert state.attempt and state.attempt.cancel_at == math.inf
    assert run(state, (60.0, Tick()))[1] == []
