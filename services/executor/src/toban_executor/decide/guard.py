"""The decisions of a guard about its slot as one pure function: `decide(state, event, now) -> (state, effects)` (docs/fencing.md 3.6).

    free --Spawn--> running --main process ended, or a cause--> ending --no process left--> next step, or the end is reported: free
             \\-- refused: slot busy, deadline passed, other incarnation

When the lease ends, an attempt is killed, or frozen (`guard_freeze`), or runs on, as its order says.
To end: SIGTERM, after the grace SIGKILL, again every 20 ms until no process is left. The first cause stays; an attempt whose result is known already
keeps it. Whatever the grace, SIGKILL goes out before the deadline of the lease, on the clock that has run further, but for `continue`.

Invariants (tests/decide/test_guard_properties.py): each Spawn has one end or refusal; no attempt passes its deadline without
SIGKILL or without being frozen, but for `continue`; no signal goes to a tree that was found empty; nothing else is thawed or started
without a lease; a command for another incarnation only gets its Spawn refused.
"""

from __future__ import annotations

import math

from toban_executor.decide import guard_cancel, guard_freeze, guard_steps
from toban_executor.decide.guard_freeze import KILL_ALLOWANCE
from toban_executor.decide.guard_types import (
    Cancel,
    CheckpointStored,
    CheckTree,
    CloseLeasePipe,
    Command,
    DrainOutput,
    DropAcked,
    Effect,
    Event,
    ExecutorClosed,
    FreezeChecked,
    HoldOutput,
    JobSpoke,
    Kill,
    PauseOutput,
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
    TellCheckpoint,
    ThawTree,
    Tick,
    TreeChecked,
    TreeSignal,
    TreeSignaled,
)
from toban_executor.decide.lease_end import LEASE_REASON
from toban_executor.decide.models import AttemptEnd
from toban_executor.decide.slot_state import Attempt, SlotState
from toban_fencing.executor_lease import Instant

CLOCK_CHECK = 0.2
"""Seconds between ticks while an attempt runs, so that a jump of the wall clock is noticed."""

KILL_AGAIN = 0.02
"""Seconds between rounds of SIGKILL: a process that was being forked during one round is met by the next."""

WAIT_REPORTED_AFTER = 1.0
"""Seconds of held output after which the log of the job records that it has waited."""

_UNKNOWN_REASON = "its processes have ended, and the end of its main process is not known"
_LEASE_CAUSES = ("lease", "executor_gone")

Step = tuple[SlotState, tuple[Effect, ...]]


def decide(state: SlotState, event: Event, now: Instant) -> Step:
    """The next state and what to do, in order. Only the last effect may have an answer, which is the next event."""
    attempt = state.attempt
    match event:
        case Tick():
            return _on_tick(state, attempt, event, now) if attempt else (state, ())
        case Received():
            return _on_received(state, event, now)
        case TreeSignaled(signal=signal):
            return _on_signaled(state, attempt, signal, now) if attempt else (state, ())
        case TreeChecked():
            return _on_tree_checked(state, attempt, event, now) if attempt else (state, ())
        case FreezeChecked(frozen=frozen):
            return _on_freeze_checked(state, attempt, frozen, now) if attempt else (state, ())
        case StepStarted(pid=pid):
            return (_with(state, attempt._replace(pid=pid)), ()) if attempt else (state, ())
        case StepNotStarted(reason=reason):
            return (
                _finish(state, attempt._replace(cause="spawn_failed", reason=reason), now) if attempt else (state, ())
            )
        case JobSpoke():
            return (_with(state, guard_steps.heartbeat(attempt, now)), ()) if attempt else (state, ())
        case ExecutorClosed():
            return _on_executor_closed(state, now)


def next_due(state: SlotState, now: Instant) -> float:
    """When the next Tick is needed at the latest, CLOCK_BOOTTIME; infinite while the slot is free."""
    attempt = state.attempt
    if attempt is None:
        return math.inf
    if attempt.suspended:
        due = guard_freeze.next_check(attempt, now, every=CLOCK_CHECK)
    else:
        left = math.inf if attempt.continues else now.seconds_until(attempt.deadline) - KILL_ALLOWANCE
        if attempt.undecided:
            left = min(_lease_left(attempt, now), min(guard_steps.timeout(attempt), attempt.cancel_at) - now.boot)
        due = min(now.boot + CLOCK_CHECK, attempt.kill_at)
        # What has passed was acted on; from then on the rounds of SIGKILL set the pace.
        if left > 0 or attempt.undecided:
            due = min(due, now.boot + left)
    return max(now.boot, min(due, guard_steps.start_due(attempt)))


# ---------------------------------------------------------------- commands


def _on_received(state: SlotState, event: Received, now: Instant) -> Step:
    command = event.command
    if event.incarnation != state.incarnation:
        if isinstance(command, Spawn):
            reason = "the order names another incarnation than this guard's"
            return state, (_refusal(command, "wrong_incarnation", reason, now),)
        return state, ()
    if state.unreset_losses:
        # The executor reports attempts that were sent before it knew of the loss as lost; they may run elsewhere by now.
        if isinstance(command, Reset) and command.losses == state.unreset_losses:
            state = state._replace(unreset_losses=0)
        return state, ()
    state, effects = _on_command(state, command, now)
    return state, (DropAcked(event.acked), *effects)


def _on_command(state: SlotState, command: Command, now: Instant) -> Step:
    attempt = state.attempt
    match command:
        case Spawn():
            return _on_spawn(state, command, now)
        case HoldOutput(on=on):
            return _on_hold(state, on, now)
        case SetDeadline(token=token) if attempt and token == attempt.token:
            attempt, effects = guard_freeze.set_deadline(attempt, command, now)
            return _with(state, attempt), effects
        case Kill(token=token) if attempt and token == attempt.token:
            # A frozen job cannot obey SIGTERM: it must not run without a lease.
            grace = 0.0 if attempt.suspended else command.grace
            attempt, effects = _end(attempt, command.cause, command.reason, grace, now)
            return _with(state, attempt), effects
        case Cancel(token=token) if attempt and token == attempt.token:
            attempt, effects = _on_cancel(attempt, command, now)
            return _with(state, attempt), effects
        case CheckpointStored(token=token) if attempt and token == attempt.token:
            return state, (TellCheckpoint(command.number, command.problem),)
    return state, ()


def _on_cancel(attempt: Attempt, cancel: Cancel, now: Instant) -> tuple[Attempt, tuple[Effect, ...]]:
    if guard_cancel.waits_for_job(attempt, cancel):
        return guard_cancel.requested(attempt, cancel, now)
    return _end(attempt, "cancel", cancel.reason, 0.0 if attempt.suspended else cancel.grace, now)


def _on_spawn(state: SlotState, spawn: Spawn, now: Instant) -> Step:
    if state.attempt is not None:
        return state, (_refusal(spawn, "slot_busy", "another attempt is in this slot", now),)
    if now.seconds_until(spawn.deadline) <= 0:
        return state, (_refusal(spawn, "lease", "the lease's deadline has passed", now),)
    return _with(state, guard_steps.begin(spawn, now)), (StartStep(spawn, spawn.order.first_step),)


def _on_hold(state: SlotState, on: bool, now: Instant) -> Step:
    since = state.held_since
    if on:
        return state._replace(held_since=now.boot if since is None else since), (PauseOutput(),)
    waited = 0.0
    if since is not None and state.attempt is not None:
        waited = now.boot - max(since, state.attempt.started.boot)
    return state._replace(held_since=None), (ResumeOutput(waited if waited >= WAIT_REPORTED_AFTER else 0.0),)


def _on_executor_closed(state: SlotState, now: Instant) -> Step:
    if state.executor_closed:
        return state, ()
    state = state._replace(executor_closed=True)
    if state.attempt is None:
        return state, (Stop(),)
    attempt, effects = _end(state.attempt, "executor_gone", "the executor process has ended", 0.0, now)
    return _with(state, attempt), effects


# ---------------------------------------------------------------- time


def _on_tick(state: SlotState, attempt: Attempt, event: Tick, now: Instant) -> Step:
    effects: tuple[Effect, ...] = ()
    # On a busy machine this tick may come late, together with the end of a short attempt.
    if now.boot >= guard_steps.start_due(attempt) and not event.child_exited:
        attempt = attempt._replace(start_reported=True)
        effects = (ReportStart(guard_steps.start_of(attempt)),)
    if attempt.suspended and not guard_freeze.is_over(attempt, now):
        attempt, more = guard_freeze.freeze(attempt, now)
        return _with(state, attempt), effects + more
    if attempt.undecided:
        attempt, more = _check_time(attempt, now)
        effects += more
    elif not attempt.continues and now.seconds_until(attempt.deadline) <= KILL_ALLOWANCE:
        attempt = attempt._replace(kill_at=min(attempt.kill_at, now.boot))
    if attempt.suspended:
        return _with(state, attempt), effects
    if now.boot >= attempt.kill_at:
        effects += (SignalTree(TreeSignal.KILL),)
    elif attempt.kill_at < math.inf and not (effects and isinstance(effects[-1], SignalTree)):
        effects += (CheckTree(),)
    return state if attempt is state.attempt else _with(state, attempt), effects


def _check_time(attempt: Attempt, now: Instant) -> tuple[Attempt, tuple[Effect, ...]]:
    """Begin to end an attempt whose lease or whose time is over, or to freeze it."""
    if attempt.suspended:
        limit = f"frozen for longer than lease_freeze_max_seconds = {attempt.freeze_max:g}; "
        reason = (limit if attempt.freezes else "") + LEASE_REASON
        return _end(attempt, "lease", reason, 0.0, now)
    if _lease_left(attempt, now) <= 0:
        if attempt.freezes or guard_freeze.is_doubtful(attempt, now):
            return guard_freeze.freeze(attempt, now)
        lease_grace = attempt.spawn.lease_grace
        left = now.seconds_until(attempt.deadline) - KILL_ALLOWANCE
        return _end(attempt, "lease", LEASE_REASON, max(0.0, min(lease_grace, left)), now)
    cancel, grace = attempt.cancel, attempt.spawn.order.grace_seconds
    if now.boot >= min(guard_steps.timeout(attempt), attempt.cancel_at):
        if cancel is not None:
            return _end(attempt, "cancel", cancel.reason, cancel.grace, now)
        return _end(attempt, "timeout", guard_steps.timeout_reason(attempt), grace, now)
    return attempt, ()


def _lease_left(attempt: Attempt, now: Instant) -> float:
    """Seconds until the end of the lease is acted on: killing must be over at the deadline, freezing begins there. Infinite for `continue`."""
    if attempt.continues:
        return math.inf
    left = now.seconds_until(attempt.deadline)
    return left if attempt.freezes else left - KILL_ALLOWANCE - attempt.spawn.lease_grace


def _on_freeze_checked(state: SlotState, attempt: Attempt, frozen: bool, now: Instant) -> Step:
    if not attempt.suspended:
        return state, ()
    attempt, effects = guard_freeze.checked(attempt, frozen, now)
    if not frozen and guard_freeze.cannot_be_frozen(attempt, now):
        reason = f"could not be frozen in {attempt.freeze_checks} checks; {LEASE_REASON}"
        attempt, effects = _end(attempt, "lease", reason, 0.0, now)
    return _with(state, attempt), effects


def _end(attempt: Attempt, cause: str, reason: str, grace: float, now: Instant) -> tuple[Attempt, tuple[Effect, ...]]:
    """Begin to end the attempt, or hurry an end that has begun."""
    effects: tuple[Effect, ...] = ()
    if attempt.undecided:
        attempt = attempt._replace(cause=cause, reason=reason)
        if cause in _LEASE_CAUSES:
            effects = (CloseLeasePipe(),)
    attempt, more = _terminate(attempt, grace, now)
    return attempt, effects + more


def _terminate(attempt: Attempt, grace: float, now: Instant) -> tuple[Attempt, tuple[Effect, ...]]:
    """SIGTERM unless it went out already or there is no time for it; the next tick after `grace` seconds sends SIGKILL."""
    # A grace that is too small for the clock is none.
    if attempt.kill_at == math.inf and now.boot + grace > now.boot:
        attempt = attempt._replace(kill_at=now.boot + grace, grace=grace)
        return attempt, (SignalTree(TreeSignal.TERMINATE),)
    return attempt._replace(kill_at=min(attempt.kill_at, now.boot + grace)), ()


def _on_signaled(state: SlotState, attempt: Attempt, signal: TreeSignal, now: Instant) -> Step:
    """The grace and the pause between rounds of SIGKILL begin when the signal is out, however long the tree took."""
    if signal is TreeSignal.KILL:
        return _with(state, attempt._replace(kill_at=now.boot + KILL_AGAIN)), (CheckTree(),)
    in_time = attempt.continues or now.seconds_until(attempt.deadline) > KILL_ALLOWANCE
    return _with(state, attempt._replace(kill_at=now.boot + (attempt.grace if in_time else 0.0))), ()


# ---------------------------------------------------------------- steps and the end


def _next_step(state: SlotState, attempt: Attempt, now: Instant) -> Step:
    attempt = guard_steps.following(attempt, now)
    return _with(state, attempt), (DrainOutput(), StartStep(attempt.spawn, attempt.step))


def _on_tree_checked(state: SlotState, attempt: Attempt, event: TreeChecked, now: Instant) -> Step:
    if event.pid:
        attempt = attempt._replace(pid=event.pid)
    if not event.unreachable or attempt.unreachable_reported:
        return _on_tree(state, attempt, event, now)
    report = ProcessesUnreachable(key=attempt.spawn.order.key, processes=event.unreachable)
    state, effects = _on_tree(state, attempt._replace(unreachable_reported=True), event, now)
    return state, (ReportUnreachable(report), *effects)


def _on_tree(state: SlotState, attempt: Attempt, event: TreeChecked, now: Instant) -> Step:
    if event.main is not None:
        attempt = attempt._replace(
            main=event.main, main_ended_wall=now.wall, step_timeout_at=math.inf, heartbeat_at=math.inf
        )
    if event.empty:
        return _on_empty(state, attempt, now)
    effects: tuple[Effect, ...] = ()
    if attempt.main is not None and attempt.kill_at == math.inf and not attempt.suspended:
        # What the main process left behind must go as well; without a lease it gets no time.
        grace = attempt.spawn.order.grace_seconds if attempt.frozen_since is None else 0.0
        attempt, effects = _terminate(attempt, grace, now)
    return _with(state, attempt), effects


def _on_empty(state: SlotState, attempt: Attempt, now: Instant) -> Step:
    attempt = guard_cancel.ended_by_cancel(attempt)
    if attempt.main is not None and attempt.undecided:
        if attempt.suspended:
            # The next step waits for the grant.
            return _with(state, attempt), ()
        if attempt.continues or now.seconds_until(attempt.deadline) > 0:
            return _next_step(state, attempt, now)
        attempt = attempt._replace(cause="lease", reason=LEASE_REASON)
    if attempt.main is None and not attempt.cause:
        attempt = attempt._replace(cause="unknown_end", reason=_UNKNOWN_REASON)
    thaw = () if attempt.frozen_since is None else (ThawTree(),)
    state, effects = _finish(state, attempt, now)
    return state, (*thaw, DrainOutput(), *effects)


def _finish(state: SlotState, attempt: Attempt, now: Instant) -> Step:
    order, main = attempt.spawn.order, attempt.main
    end = AttemptEnd(
        key=order.key,
        pid=attempt.pid,
        cause=attempt.cause,
        reason=attempt.reason,
        exit_code=main.exit_code if main else None,
        signal=main.signal if main else None,
        step=attempt.step,
        steps=len(order.steps),
        started_ns=guard_steps.ns(attempt.started.wall) if guard_steps.began(attempt) else 0,
        finished_ns=guard_steps.ns(attempt.main_ended_wall or now.wall),
        step_ends=guard_steps.ends(attempt, now),
    )
    report = ReportEnd(end, order.ticket)
    return _with(state, None), (report, Stop()) if state.executor_closed else (report,)


def _refusal(spawn: Spawn, cause: str, reason: str, now: Instant) -> Refuse:
    order = spawn.order
    return Refuse(
        AttemptEnd(
            key=order.key, cause=cause, reason=reason, steps=len(order.steps), finished_ns=guard_steps.ns(now.wall)
        )
    )


def _with(state: SlotState, attempt: Attempt | None) -> SlotState:
    # As _replace(attempt=attempt) in a third of the time: each run comes here five times.
    return SlotState(state.incarnation, state.unreset_losses, attempt, state.held_since, state.executor_closed)
