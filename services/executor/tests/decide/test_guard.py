"""The decisions of a guard about its slot, step by step (docs/fencing.md 3.6); test_guard_properties.py has any course of events."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard import (
    KILL_AGAIN,
    decide,
    next_due,
)
from toban_executor.decide.guard_freeze import KILL_ALLOWANCE
from toban_executor.decide.guard_types import (
    Acknowledge,
    CheckTree,
    CloseLeasePipe,
    Command,
    DrainOutput,
    DropAcked,
    Effect,
    Event,
    ExecutorClosed,
    HoldOutput,
    Kill,
    PauseOutput,
    ProcessEnd,
    ProcessesUnreachable,
    Received,
    Refuse,
    ReportEnd,
    ReportStart,
    ReportUnreachable,
    Reset,
    ResumeOutput,
    SetDeadline,
    SignalTree,
    Spawn,
    StartStep,
    StepNotStarted,
    StepStarted,
    Stop,
    Tick,
    TreeChecked,
    TreeSignal,
    TreeSignaled,
)
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.decide.slot_state import SlotState
from toban_fencing.executor_lease import Instant

OURS, OTHER = "ours", "other"
START = Instant(1000.0, 5000.0)
TERMINATE, KILL = SignalTree(TreeSignal.TERMINATE), SignalTree(TreeSignal.KILL)
TERMINATED, KILLED = TreeSignaled(TreeSignal.TERMINATE), TreeSignaled(TreeSignal.KILL)
FREE = SlotState(OURS)


def spawn(
    token: int = 1, *, lease: float = 60.0, lease_grace: float = 2.0, at: Instant = START, **fields: Any
) -> Spawn:
    """A command of one step, unless `steps` are given."""
    steps = fields.pop(
        "steps", (StepOrder(type="command", argv=("x",), timeout_seconds=fields.pop("step_timeout", 0)),)
    )
    order = StartOrder(key=AttemptKey(7, token), steps=steps, **{"grace_seconds": 1.0, **fields})
    return Spawn(order=order, programs=("",) * len(steps), env={}, deadline=at.plus(lease), lease_grace=lease_grace)


def received(command: Command, *, incarnation: str = OURS, acked: int = 0) -> Received:
    return Received(incarnation, acked, command)


def kill(token: int = 1, grace: float = 1.0, cause: str = "cancel") -> Received:
    return received(Kill(token=token, cause=cause, reason="asked", grace=grace))


def run(state: SlotState, *events: tuple[float, Event]) -> tuple[SlotState, list[Effect]]:
    """The state after events at so many seconds after START, and the effects of the last one."""
    effects: Sequence[Effect] = ()
    for seconds, event in events:
        state, effects = decide(state, event, START.plus(seconds))
    return state, list(effects)


def running(**fields: Any) -> SlotState:
    state, effects = run(FREE, (0.0, received(spawn(**fields))), (0.0, StepStarted(99)))
    assert effects == []
    return state


EXIT_0 = ProcessEnd(exit_code=0)


# ---------------------------------------------------------------- start


def test_a_spawn_starts_its_first_step() -> None:
    order = spawn()
    state, effects = run(FREE, (0.0, received(order, acked=5)))
    assert effects == [DropAcked(5), StartStep(order, 0)]
    assert state.attempt is not None and state.attempt.token == 1


@pytest.mark.parametrize(
    ("state", "event", "cause"),
    [
        (FREE, received(spawn(lease=0.0)), "lease"),
        (FREE, received(spawn(), incarnation=OTHER), "wrong_incarnation"),
        (FREE._replace(unreset_losses=1), received(spawn(), incarnation=OTHER), "wrong_incarnation"),
        (running(), received(spawn(token=2)), "slot_busy"),
    ],
)
def test_a_refused_spawn_changes_nothing(state: SlotState, event: Received, cause: str) -> None:
    after, effects = run(state, (0.0, event))
    [refusal] = [effect for effect in effects if not isinstance(effect, DropAcked)]
    assert isinstance(refusal, Refuse)
    assert (refusal.end.cause, refusal.end.pid, refusal.end.started_ns) == (cause, 0, 0)
    assert after == state


def test_the_wall_clock_alone_refuses_too() -> None:
    order = spawn(lease=10.0)
    _, effects = decide(FREE, received(order), Instant(START.boot, START.wall + 10.0))
    assert isinstance(effects[-1], Refuse)


def test_what_does_not_start_ends_with_the_reason() -> None:
    state, effects = run(FREE, (0.0, received(spawn())), (0.0, StepNotStarted("no such file")))
    [report] = effects
    assert isinstance(report, ReportEnd)
    assert (report.end.cause, report.end.reason, report.end.started_ns) == ("spawn_failed", "no such file", 0)
    assert state == FREE


# ---------------------------------------------------------------- end


def test_an_empty_tree_without_the_end_of_its_main_process_is_no_success() -> None:
    state, effects = run(running(), (1.0, TreeChecked(empty=True)))
    assert isinstance(effects[-1], ReportEnd) and effects[-1].end.cause == "unknown_end"
    assert state == FREE


def test_an_empty_tree_is_drained_and_reported() -> None:
    state, effects = run(running(), (0.5, TreeChecked(main=ProcessEnd(signal=11), empty=True)))
    drain, report = effects
    assert isinstance(drain, DrainOutput) and isinstance(report, ReportEnd)
    end = report.end
    assert (end.cause, end.exit_code, end.signal, end.pid, end.steps) == ("", None, 11, 99, 1)
    assert (end.started_ns, end.finished_ns) == (5000 * 10**9, 5000 * 10**9 + 5 * 10**8)
    assert state == FREE


def test_what_the_main_process_leaves_behind_is_ended_and_its_result_stays() -> None:
    state, effects = run(running(), (1.0, TreeChecked(main=EXIT_0, empty=False)))
    assert effects == [TERMINATE]
    state, effects = run(state, (1.5, kill(grace=60.0)))
    assert effects == [DropAcked(0)]
    state, effects = run(state, (2.0, Tick()))
    assert effects == [ReportStart(_start()), KILL]
    state, effects = run(state, (2.0, KILLED))
    assert effects == [CheckTree()]
    state, effects = run(state, (2.1, TreeChecked(empty=True)))
    assert isinstance(effects[-1], ReportEnd)
    assert (effects[-1].end.cause, effects[-1].end.exit_code) == ("", 0)
    assert effects[-1].end.finished_ns == 5001 * 10**9


def test_an_end_that_is_seen_with_the_tick_implies_the_start() -> None:
    state, effects = run(running(), (1.0, Tick(child_exited=True)))
    assert effects == []
    assert next_due(state, START.plus(1.0)) == START.boot + 1.0, "it is due again if another process has ended"
    assert run(state, (1.0, Tick()))[1] == [ReportStart(_start())]


def test_the_start_is_reported_with_the_process_that_a_zygote_has_forked() -> None:
    """Its imports may take longer than the start is held back."""
    state, effects = run(FREE, (0.0, received(spawn())), (0.0, StepStarted(0)), (1.0, Tick()))
    assert ReportStart not in map(type, effects)
    assert next_due(state, START.plus(1.0)) > START.boot + 1.0
    state, _ = run(state, (2.0, StepStarted(99)))
    assert next_due(state, START.plus(2.0)) == START.boot + 2.0
    [effect] = run(state, (2.0, Tick()))[1]
    assert isinstance(effect, ReportStart) and (effect.start.pid, effect.start.started_ns) == (99, 5000 * 10**9)


def test_a_process_that_is_known_with_the_end_of_its_zygote_is_that_of_the_attempt() -> None:
    state, _ = run(FREE, (0.0, received(spawn())), (0.0, StepStarted(0)), (1.0, TreeChecked(empty=False, pid=99)))
    _, effects = run(state, (1.5, TreeChecked(main=EXIT_0, empty=True)))
    assert isinstance(effects[-1], ReportEnd) and effects[-1].end.pid == 99


def test_a_step_that_has_had_no_process_leaves_the_steps_before_it() -> None:
    """Its zygote has not forked, and it could not be started in another way either."""
    state = running(steps=(StepOrder(type="python", argv=("x",)),) * 2)
    state, _ = run(state, (0.5, TreeChecked(main=EXIT_0, empty=True)), (0.5, StepStarted(0)))
    _, effects = run(state, (0.9, StepNotStarted("no such file")))
    [report] = effects
    assert isinstance(report, ReportEnd)
    assert (report.end.cause, report.end.pid, report.end.started_ns) == ("spawn_failed", 0, 5000 * 10**9)
    assert [(one.step, one.exit_code) for one in report.end.step_ends] == [(0, 0)]


def _start() -> Any:
    [effect] = run(running(), (1.0, Tick()))[1]
    assert isinstance(effect, ReportStart)
    return effect.start


@pytest.mark.parametrize("grace", [0.0, 1.0])
def test_a_kill_terminates_then_kills_after_its_grace(grace: float) -> None:
    state, effects = run(running(), (1.0, kill(grace=grace)))
    assert effects == [DropAcked(0), *([TERMINATE] if grace else [])]
    state, effects = run(state, (1.0 + grace, Tick()))
    assert effects[-1] == KILL
    state, effects = run(state, (1.0 + grace, KILLED))
    assert effects == [CheckTree()]
    assert next_due(state, START.plus(1.0 + grace)) == pytest.approx(START.boot + 1.0 + grace + KILL_AGAIN)


def test_the_grace_begins_when_the_signal_has_reached_the_whole_tree() -> None:
    """A tree of thousands of processes takes a while: its members have the grace that the job asks for all the same."""
    state, _ = run(running(), (1.0, kill(grace=1.0)), (1.75, TERMINATED))
    state, effects = run(state, (2.5, Tick()))
    assert effects[-1] == CheckTree() and next_due(state, START.plus(2.6)) == START.boot + 2.75
    state, effects = run(state, (2.75, Tick()))
    assert effects == [KILL]
    state, effects = run(state, (3.5, KILLED))
    assert effects == [CheckTree()]
    assert next_due(state, START.plus(3.5)) == START.boot + 3.5 + KILL_AGAIN, "there is a pause between two rounds"


@pytest.mark.parametrize("signaled", [9.0, 10.0 - KILL_ALLOWANCE, 10.5])
def test_a_slow_signal_never_moves_the_kill_beyond_the_deadline(signaled: float) -> None:
    state, _ = run(running(lease=10.0, lease_grace=2.0), (8.0, Tick()), (signaled, TERMINATED))
    at = max(signaled, 10.0 - KILL_ALLOWANCE)
    assert next_due(state, START.plus(signaled)) <= START.plus(at).boot + 1e-9
    _, effects = run(state, (at, Tick()))
    assert effects == [KILL]


def test_a_second_kill_hurries_and_keeps_the_first_cause() -> None:
    state, _ = run(running(), (1.0, kill(grace=60.0)), (2.0, kill(grace=0.0, cause="shutdown")))
    state, effects = run(state, (2.0, Tick()), (2.1, TreeChecked(main=ProcessEnd(signal=9), empty=True)))
    assert isinstance(effects[-1], ReportEnd) and effects[-1].end.cause == "cancel"


@pytest.mark.parametrize(
    ("fields", "at", "reason"),
    [
        ({"timeout_seconds": 3}, 3.0, "ran longer than timeout_seconds = 3"),
        ({"step_timeout": 2}, 2.0, "step 1 ran longer than its timeout_seconds = 2"),
        ({"timeout_seconds": 2, "step_timeout": 2}, 2.0, "ran longer than timeout_seconds = 2"),
    ],
)
def test_timeouts(fields: dict[str, Any], at: float, reason: str) -> None:
    state = running(**fields)
    before, effects = run(state, (at - 0.1, Tick()))
    assert TERMINATE not in effects and next_due(before, START.plus(at - 0.1)) == START.boot + at
    after, effects = run(state, (at, Tick()))
    assert TERMINATE in effects
    assert after.attempt is not None and (after.attempt.cause, after.attempt.reason) == ("timeout", reason)


def test_the_lease_ends_with_its_grace_before_the_allowance() -> None:
    state = running(lease=10.0, lease_grace=2.0)
    due = 10.0 - 2.0 - KILL_ALLOWANCE
    state, effects = run(state, (due + 0.01, Tick()))
    assert effects[-2:] == [CloseLeasePipe(), TERMINATE]
    state, effects = run(state, (10.0 - KILL_ALLOWANCE, Tick()))
    assert effects == [KILL]


def test_a_later_deadline_lets_it_go_on() -> None:
    later = received(SetDeadline(token=1, deadline=START.plus(100.0)))
    state, effects = run(running(lease=10.0), (9.0 - KILL_ALLOWANCE, later), (20.0, Tick()))
    assert TERMINATE not in effects and state.attempt is not None and not state.attempt.cause


def test_steps_follow_each_other_until_one_fails() -> None:
    steps = tuple(StepOrder(type="command", argv=(name,), timeout_seconds=1) for name in "abc")
    state = running(steps=steps)
    state, effects = run(state, (0.5, TreeChecked(main=EXIT_0, empty=True)))
    assert effects[0] == DrainOutput() and isinstance(effects[1], StartStep) and effects[1].step == 1
    state, _ = run(state, (0.5, StepStarted(100)))
    assert state.attempt is not None and state.attempt.step_timeout_at == START.boot + 1.5
    state, effects = run(state, (0.6, TreeChecked(main=ProcessEnd(exit_code=3), empty=True)))
    assert isinstance(effects[-1], ReportEnd)
    assert (effects[-1].end.exit_code, effects[-1].end.step, effects[-1].end.steps) == (3, 1, 3)


@pytest.mark.parametrize("event", [kill(), ExecutorClosed()])
def test_no_step_follows_when_the_end_comes_between_two(event: Event) -> None:
    """What the first step left behind is still being ended."""
    state = running(steps=(StepOrder(type="command", argv=("x",)),) * 2)
    state, _ = run(state, (0.5, TreeChecked(main=EXIT_0, empty=False)), (0.6, event))
    state, effects = run(state, (0.7, TreeChecked(empty=True)))
    assert isinstance(effects[1], ReportEnd)
    assert (effects[1].end.cause, effects[1].end.step) == ("cancel" if event == kill() else "executor_gone", 0)


def test_no_step_starts_after_the_deadline() -> None:
    """The wall clock was set forward, and no tick has noticed yet."""
    state = running(steps=(StepOrder(type="command", argv=("x",)),) * 2, lease=10.0)
    _, effects = decide(state, TreeChecked(main=EXIT_0, empty=True), Instant(START.boot, START.wall + 10.0))
    assert isinstance(effects[1], ReportEnd) and effects[1].end.cause == "lease"


def test_processes_that_refuse_signals_are_reported_once() -> None:
    state, _ = run(running(), (1.0, received(kill())))
    state, effects = run(state, (1.1, TreeChecked(empty=False, unreachable=2)))
    assert effects == [ReportUnreachable(ProcessesUnreachable(key=spawn().order.key, processes=2))]
    state, effects = run(state, (1.2, TreeChecked(empty=False, unreachable=3)))
    assert effects == []


def test_the_end_of_the_executor_ends_the_attempt_then_the_guard() -> None:
    state, effects = run(running(), (1.0, ExecutorClosed()))
    assert effects == [CloseLeasePipe()]
    state, effects = run(state, (1.0, Tick()))
    assert KILL in effects
    state, effects = run(state, (1.1, TreeChecked(main=ProcessEnd(signal=9), empty=True)))
    assert isinstance(effects[1], ReportEnd) and effects[1].end.cause == "executor_gone"
    assert effects[2] == Stop()
    assert run(FREE, (0.0, ExecutorClosed()))[1] == [Stop()]


# ---------------------------------------------------------------- commands of no attempt


def test_a_successor_obeys_nothing_before_the_reset_of_its_loss() -> None:
    state = SlotState(OURS, unreset_losses=2)
    for command in (spawn(), HoldOutput(True), Reset(1), Acknowledge()):
        assert run(state, (0.0, received(command, acked=9))) == (state, [])
    state, effects = run(state, (0.0, received(Reset(2))))
    assert (state, effects) == (FREE, [])


@pytest.mark.parametrize("command", [kill(2).command, SetDeadline(token=2, deadline=Instant(0.0, 0.0))])
def test_a_command_for_another_attempt_has_no_effect(command: Command) -> None:
    state = running()
    assert run(state, (1.0, received(command, acked=3))) == (state, [DropAcked(3)])


def test_held_output_is_reported_when_the_job_had_to_wait() -> None:
    state, effects = run(running(), (1.0, received(HoldOutput(True))))
    assert effects[-1] == PauseOutput()
    state, _ = run(state, (2.0, received(HoldOutput(True))))
    assert run(state, (3.5, received(HoldOutput(False))))[1][-1] == ResumeOutput(2.5)
    assert run(state, (1.5, received(HoldOutput(False))))[1][-1] == ResumeOutput(0.0)
    idle, _ = run(FREE, (0.0, received(HoldOutput(True))))
    assert run(idle, (9.0, received(HoldOutput(False))))[1][-1] == ResumeOutput(0.0)


def test_a_free_slot_needs_no_tick() -> None:
    assert next_due(FREE, START) == math.inf
    assert decide(FREE, Tick(), START) == (FREE, ())
