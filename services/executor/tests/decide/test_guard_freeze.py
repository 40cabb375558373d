"""What a guard decides when the lease of a job that is to be frozen ends: every order of grant, deadline, cancel, fence and exit."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard import CLOCK_CHECK, KILL_AGAIN, decide, next_due
from toban_executor.decide.guard_freeze import FREEZE_AGAIN, FREEZE_ALLOWANCE, FREEZE_CHECKS, KILL_ALLOWANCE
from toban_executor.decide.guard_types import (
    CheckTree,
    CloseLeasePipe,
    DrainOutput,
    Effect,
    Event,
    ExecutorClosed,
    FreezeChecked,
    FreezeTree,
    FreezeTurn,
    Kill,
    ProcessEnd,
    Received,
    ReportEnd,
    ReportFreeze,
    SetDeadline,
    SignalTree,
    Spawn,
    StartStep,
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
KEY = AttemptKey(7, 1)
TERMINATE, KILL = SignalTree(TreeSignal.TERMINATE), SignalTree(TreeSignal.KILL)
TERMINATED, KILLED = TreeSignaled(TreeSignal.TERMINATE), TreeSignaled(TreeSignal.KILL)
EXIT_0 = ProcessEnd(exit_code=0)
LEASE = 10.0
FROZEN, RUNS = FreezeChecked(frozen=True), FreezeChecked(frozen=False)


def run(state: SlotState, *events: tuple[float, Event]) -> tuple[SlotState, list[Effect]]:
    """The state after events at so many seconds after START, and the effects of the last one."""
    effects: Sequence[Effect] = ()
    for seconds, event in events:
        state, effects = decide(state, event, START.plus(seconds))
    return state, [effect for effect in effects if type(effect).__name__ != "DropAcked"]


def running(*, steps: int = 1, freeze_max: float = 300.0, **fields: Any) -> SlotState:
    """An attempt whose lease ends after 10 seconds, and that has reported its start."""
    order = StartOrder(
        key=KEY,
        steps=(StepOrder(type="command", argv=("x",), timeout_seconds=fields.pop("step_timeout", 0)),) * steps,
        on_lease_loss=fields.pop("on_lease_loss", "freeze"),
        grace_seconds=1.0,
        **fields,
    )
    spawn = Spawn(
        order=order,
        programs=("",) * steps,
        env={},
        deadline=START.plus(LEASE),
        lease_grace=2.0,
        freeze_max=freeze_max,
    )
    received = Received("ours", 0, spawn)
    return run(SlotState("ours"), (0.0, received), (0.0, StepStarted(99)), (0.1, Tick()))[0]


def frozen(at: float = LEASE, **fields: Any) -> SlotState:
    """Frozen and verified."""
    state, effects = run(running(**fields), (at, Tick()), (at, FROZEN))
    assert effects == [turn(True, 0.0, at)]
    return state


def turn(on: bool, seconds: float, at: float) -> ReportFreeze:
    return ReportFreeze(FreezeTurn(key=KEY, frozen=on, seconds=seconds, at_ns=int((START.wall + at) * 1e9)))


def grant(at: float, *, thaw: bool = True, lease: float = LEASE, **fields: Any) -> Received:
    """A grant of a heartbeat sent at `at`."""
    deadline = START.plus(at + lease)
    return Received("ours", 0, SetDeadline(token=1, deadline=deadline, thaw=thaw, **fields))


def kill(cause: str = "cancel", grace: float = 30.0) -> Received:
    return Received("ours", 0, Kill(token=1, cause=cause, reason="asked", grace=grace))


# ---------------------------------------------------------------- the deadline


def test_nothing_is_signalled_before_the_deadline_and_all_is_stopped_at_it() -> None:
    state, effects = run(running(), (LEASE - 0.01, Tick()))
    assert effects == []
    assert next_due(state, START.plus(LEASE - 0.01)) == pytest.approx(START.boot + LEASE)
    state, effects = run(state, (LEASE, Tick()))
    assert effects == [FreezeTree()]
    assert run(state, (LEASE, FROZEN))[1] == [turn(True, 0.0, LEASE)]


def test_the_wall_clock_alone_freezes_too() -> None:
    now = Instant(START.boot + 1, START.wall + LEASE)
    _state, effects = decide(running(), Tick(), now)
    assert effects == (FreezeTree(),)


def test_it_is_tried_again_until_the_time_is_over() -> None:
    state, effects = run(running(), (LEASE, Tick()), (LEASE, RUNS))
    assert effects == []
    assert next_due(state, START.plus(LEASE)) == START.boot + LEASE + FREEZE_AGAIN
    state, effects = run(state, (LEASE + 0.1, Tick()))
    assert effects == [FreezeTree()]
    state, effects = run(state, (LEASE + 0.1, FROZEN))
    assert effects == [turn(True, 0.0, LEASE + 0.1)]


def test_what_cannot_be_frozen_in_time_is_killed() -> None:
    late = LEASE + FREEZE_ALLOWANCE + 0.01
    state, effects = run(
        running(), (LEASE, Tick()), *[(LEASE, RUNS)] * (FREEZE_CHECKS - 1), (late, Tick()), (late, RUNS)
    )
    assert effects == [CloseLeasePipe()]
    assert next_due(state, START.plus(late)) == START.boot + late
    state, effects = run(state, (late, Tick()))
    assert effects == [KILL]
    state, effects = run(state, (late + 1, KILLED))
    assert effects == [CheckTree()]
    assert next_due(state, START.plus(late + 1)) == START.boot + late + 1 + KILL_AGAIN
    _, effects = run(state, (late + 1, TreeChecked(main=ProcessEnd(signal=9), empty=True)))
    end = effects[-1]
    assert isinstance(end, ReportEnd)
    assert (end.end.cause, end.end.signal) == ("lease", 9)
    assert "could not be frozen in 3 checks" in end.end.reason


def test_a_guard_that_was_late_keeps_what_the_executor_has_frozen_and_kills_what_runs() -> None:
    state, effects = run(running(), (LEASE + 5, Tick()))
    assert effects == [FreezeTree()]
    assert run(state, (LEASE + 5, FROZEN))[1] == [turn(True, 0.0, LEASE + 5)]
    assert run(state, (LEASE + 5, RUNS), (LEASE + 5, Tick()))[1] == [KILL]


def test_a_frozen_tree_is_looked_at_again_and_killed_when_it_cannot_be_kept() -> None:
    state = frozen()
    assert next_due(state, START.plus(LEASE)) == START.boot + LEASE + CLOCK_CHECK
    state, effects = run(state, (20.0, Tick()))
    assert effects == [FreezeTree()]
    assert run(state, (20.0, FROZEN))[1] == [], "its freeze is reported once"
    state, effects = run(state, (20.0, RUNS))
    assert effects == []
    again, _ = run(state, (20.1, Tick()), (20.1, FROZEN))
    assert again.attempt and again.attempt.freeze_by == math.inf
    state, effects = run(state, (20.3, Tick()), (20.3, RUNS), (20.3, Tick()))
    assert effects == [KILL]


# ---------------------------------------------------------------- grants


def test_a_grant_that_names_it_lets_it_go_on() -> None:
    state, effects = run(frozen(), (25.0, grant(24.9)))
    assert effects == [ThawTree(), turn(False, 15.0, 25.0), CheckTree()]
    state, effects = run(state, (25.0, TreeChecked(empty=False)), (26.0, Tick()))
    assert effects == []
    assert state.attempt and not state.attempt.suspended
    assert run(state, (35.0, Tick()))[1] == [FreezeTree()], "it freezes again at the next loss"


@pytest.mark.parametrize(
    "command", [grant(24.9, thaw=False), grant(5.0), grant(24.9, lease=0.05)], ids=["not named", "old", "over"]
)
def test_no_other_grant_lets_it_go_on(command: Received) -> None:
    state, effects = run(frozen(), (25.0, command))
    assert effects == []
    assert run(state, (25.2, Tick()))[1] == [FreezeTree()]


def test_a_grant_while_it_is_being_frozen() -> None:
    state, _ = run(running(), (LEASE, Tick()), (LEASE, RUNS))
    state, effects = run(state, (LEASE + 0.05, grant(LEASE, thaw=False)))
    assert effects == []
    state, effects = run(state, (LEASE + 0.1, grant(LEASE)))
    assert effects[0] == ThawTree()
    assert state.attempt and state.attempt.freeze_by == math.inf


def test_a_grant_in_time_freezes_nothing() -> None:
    state, _ = run(running(), (9.0, grant(8.9, thaw=False)))
    assert run(state, (LEASE, Tick()))[1] == []


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("fields", [{"timeout_seconds": 12}, {"step_timeout": 12}])
def test_frozen_time_counts_in_no_timeout(fields: dict[str, Any]) -> None:
    state, _ = run(frozen(**fields), (100.0, Tick()), (100.0, FROZEN), (110.0, grant(109.9, lease=60)))
    state, effects = run(state, (110.0, TreeChecked(empty=False)), (111.9, Tick()))
    assert effects == []
    state, effects = run(state, (112.1, Tick()))
    assert effects[0] == TERMINATE
    assert state.attempt and state.attempt.cause == "timeout"


def test_what_the_executor_froze_by_itself_counts_in_no_timeout_either() -> None:
    """The guard was stopped: it learns the time from the grant."""
    state, effects = run(running(timeout_seconds=12), (50.0, grant(49.9, lease=60, frozen_seconds=40.0)))
    assert effects == []
    assert run(state, (51.0, Tick()))[1] == []
    state, effects = run(state, (52.1, Tick()))
    assert state.attempt and state.attempt.cause == "timeout"


def test_after_so_many_seconds_it_is_killed() -> None:
    state = frozen(freeze_max=30.0)
    assert run(state, (39.9, Tick()))[1] == [FreezeTree()]
    state, effects = run(state, (40.0, Tick()))
    assert effects == [CloseLeasePipe(), KILL]
    _, effects = run(state, (40.0, KILLED), (40.0, TreeChecked(main=ProcessEnd(signal=9), empty=True)))
    assert effects[:2] == [ThawTree(), DrainOutput()]
    assert isinstance(effects[2], ReportEnd)
    assert (effects[2].end.cause, "lease_freeze_max_seconds = 30" in effects[2].end.reason) == ("lease", True)


def test_a_later_limit_counts_for_a_frozen_one() -> None:
    state, effects = run(frozen(), (15.0, grant(5.0, thaw=False, freeze_max=20.0)))
    assert effects == []
    assert run(state, (30.0, Tick()))[1] == [CloseLeasePipe(), KILL]


# ---------------------------------------------------------------- cancel, fence, the executor's end


@pytest.mark.parametrize("event", [kill(), kill(cause="lease", grace=0.0), ExecutorClosed()])
@pytest.mark.parametrize("being", [False, True], ids=["frozen", "being frozen"])
def test_a_frozen_job_ends_by_sigkill_alone(event: Event, being: bool) -> None:
    """It must not run on, not even to handle SIGTERM."""
    state = run(running(), (LEASE, Tick()), (LEASE, RUNS))[0] if being else frozen()
    state, effects = run(state, (20.0, event))
    assert TERMINATE not in effects
    assert run(state, (20.0, Tick()))[1] == [KILL]
    assert run(state, (20.0, grant(19.9)))[1] == [], "a grant afterwards changes nothing"


def test_a_cancel_after_the_grant_is_polite() -> None:
    state, _ = run(frozen(), (20.0, grant(19.9)), (20.0, TreeChecked(empty=False)))
    assert run(state, (20.1, kill()))[1] == [TERMINATE]


def test_what_is_being_ended_already_is_killed_before_the_deadline() -> None:
    state, _ = run(running(), (9.0, kill()), (9.0, TERMINATED))
    assert run(state, (LEASE - 0.04, Tick()))[1] == [KILL]


# ---------------------------------------------------------------- exits


def test_an_exit_before_the_freeze_keeps_its_code() -> None:
    """The job was over when it was to be frozen: it is not repeated."""
    state, effects = run(frozen(), (LEASE, TreeChecked(main=EXIT_0, empty=True)))
    assert state.attempt is None
    assert effects[:2] == [ThawTree(), DrainOutput()]
    assert isinstance(effects[2], ReportEnd)
    assert (effects[2].end.cause, effects[2].end.exit_code) == ("", 0)


def test_what_an_ended_job_left_behind_is_killed_while_frozen() -> None:
    state, effects = run(frozen(), (20.0, TreeChecked(main=EXIT_0, empty=False)))
    assert effects == []
    assert run(state, (20.0, Tick()))[1] == [KILL]


def test_the_next_step_waits_for_the_grant() -> None:
    state, effects = run(frozen(steps=2), (20.0, TreeChecked(main=EXIT_0, empty=True)))
    assert effects == []
    state, effects = run(state, (20.2, Tick()), (20.2, FROZEN))
    assert effects == []
    state, effects = run(state, (30.0, grant(29.9)))
    assert effects[-1] == CheckTree()
    _, effects = run(state, (30.0, TreeChecked(empty=True)))
    assert [type(effect) for effect in effects] == [DrainOutput, StartStep]


def test_leftovers_of_a_step_get_their_grace_after_the_grant() -> None:
    state, effects = run(frozen(steps=2), (20.0, TreeChecked(main=EXIT_0, empty=False)))
    assert effects == []
    state, _ = run(state, (30.0, grant(29.9)))
    assert run(state, (30.0, TreeChecked(empty=False)))[1] == [TERMINATE]


def test_a_kill_order_of_the_definition_kills_as_before() -> None:
    state = running()
    assert state.attempt
    order = replace(state.attempt.spawn.order, on_lease_loss="kill")
    state = state._replace(attempt=state.attempt._replace(spawn=state.attempt.spawn._replace(order=order)))
    _, effects = run(state, (LEASE - 2.05, Tick()))
    assert effects[:2] == [CloseLeasePipe(), TERMINATE]


# ---------------------------------------------------------------- on_lease_loss: continue


def test_a_job_that_continues_gets_no_signal_at_the_deadline() -> None:
    state, effects = run(
        running(on_lease_loss="continue"), (LEASE - 0.01, Tick()), (LEASE, Tick()), (LEASE + 60, Tick())
    )
    assert effects == [] and state.attempt is not None and state.attempt.undecided


def test_a_job_that_continues_goes_on_to_its_next_step_without_a_lease() -> None:
    state = running(on_lease_loss="continue", steps=2)
    state, effects = run(state, (LEASE + 5, TreeChecked(empty=True, main=EXIT_0)))
    assert StartStep(state.attempt.spawn, 1) in effects


def test_a_job_that_continues_has_its_whole_grace_after_the_deadline() -> None:
    state, effects = run(running(on_lease_loss="continue"), (LEASE + 5, kill(grace=30.0)))
    assert effects == [TERMINATE]
    state, _ = run(state, (LEASE + 5, TERMINATED))
    assert run(state, (LEASE + 34, Tick()))[1] == [CheckTree()]
    assert run(state, (LEASE + 35.1, Tick()))[1][-1] == KILL


@pytest.mark.parametrize("timeout", [{"timeout_seconds": 30}, {"step_timeout": 30}])
def test_a_job_that_continues_still_has_its_timeouts(timeout: dict[str, int]) -> None:
    state = running(on_lease_loss="continue", **timeout)
    assert run(state, (29.9, Tick()))[1] == []
    assert run(state, (30.1, Tick()))[1] == [TERMINATE]


def test_a_job_that_continues_ends_with_its_executor() -> None:
    _, effects = run(running(on_lease_loss="continue"), (LEASE + 5, ExecutorClosed()), (LEASE + 5, Tick()))
    assert KILL in effects


# ---------------------------------------------------------------- a wall clock that was stepped

HOUR = 3600.0


def stepped(state: SlotState, *events: tuple[float, Event]) -> tuple[SlotState, list[Effect]]:
    """As `run`, an hour after the wall clock has jumped by an hour."""
    effects: Sequence[Effect] = ()
    for seconds, event in events:
        state, effects = decide(state, event, Instant(START.boot + seconds, START.wall + seconds + HOUR))
    return state, [effect for effect in effects if type(effect).__name__ != "DropAcked"]


@pytest.mark.parametrize("on_lease_loss", ["freeze", "kill"])
def test_a_step_of_the_wall_clock_stops_a_job_and_the_next_grant_lets_it_go_on(on_lease_loss: str) -> None:
    state, effects = stepped(running(on_lease_loss=on_lease_loss), (1.0, Tick()))
    assert effects == [FreezeTree()], "neither SIGTERM nor SIGKILL"
    state, effects = stepped(state, (1.1, RUNS))
    assert effects == [], "the time to freeze it has begun with the step"
    state, effects = stepped(state, (1.15, FROZEN))
    assert [type(effect) for effect in effects] == [ReportFreeze]
    grant = SetDeadline(
        token=1, deadline=Instant(START.boot + 11.5, START.wall + 11.5 + HOUR), thaw=True, freeze_max=300.0
    )
    state, effects = stepped(state, (2.0, Received("ours", 0, grant)))
    assert ThawTree() in effects
    state, effects = stepped(state, (2.2, Tick()))
    assert FreezeTree() not in effects and KILL not in effects
    assert state.attempt is not None and state.attempt.undecided


def test_what_does_not_stop_after_a_step_is_killed() -> None:
    state, _ = stepped(running(on_lease_loss="kill"), (1.0, Tick()), *[(1.1, RUNS)] * (FREEZE_CHECKS - 1))
    state, _ = stepped(state, (1.0 + FREEZE_ALLOWANCE, RUNS))
    state, effects = stepped(state, (1.25, Tick()))
    assert KILL in effects


def test_without_a_grant_it_is_killed_before_the_lease_ends_by_the_other_clock() -> None:
    state, _ = stepped(running(on_lease_loss="kill"), (1.0, Tick()), (1.1, FROZEN))
    state, effects = stepped(state, (9.9, Tick()))
    assert effects == [FreezeTree()]
    due = next_due(state, Instant(START.boot + 9.9, START.wall + 9.9 + HOUR))
    assert due == pytest.approx(START.boot + LEASE - KILL_ALLOWANCE)
    state, effects = stepped(state, (LEASE - KILL_ALLOWANCE, Tick()))
    assert KILL in effects


def test_at_the_end_of_a_lease_by_both_clocks_a_job_is_killed_as_ever() -> None:
    _, effects = run(running(on_lease_loss="kill"), (7.96, Tick()))
    assert TERMINATE in effects and FreezeTree() not in effects
