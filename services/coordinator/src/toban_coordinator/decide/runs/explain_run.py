"""Why a run waits, was skipped or was sent: the rules of its definition in words, decided by the code that places runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from toban_coordinator.decide.limits.groups import Groups
from toban_coordinator.decide.limits.limits import Admission, Need, Usage, room, waits_for
from toban_coordinator.decide.placement.assign import late_limit, skip_reason, wait_until
from toban_coordinator.decide.runs.wait_reason import Check
from toban_domain.job import JobSpec
from toban_domain.outcome import Reason
from toban_domain.placement import DueRun
from toban_domain.run import RunState

# What a person can do about a run that was not started, by the reason of its row.
_REMEDIES = {
    "overlap": "policy `queue` lets such a run wait, `allow` starts it beside the other",
    "same_scope": "start it again when that run has ended",
    "repeated": "nothing is left to do; a run with other dedupe keys starts",
    "replaced": "policy `queue` keeps each run",
    "late": "`skip_late_after_seconds` of the job, or the setting skip_late_runs_after_seconds, allows more",
    "max_wait": "`max_wait_seconds` of the job allows more; `toban limit list` shows what is full",
}
_VERBS = {
    RunState.SUCCEEDED: "succeeded",
    RunState.FAILED: "failed",
    RunState.TIMED_OUT: "timed out",
    RunState.CANCELED: "was cancelled",
    RunState.SKIPPED: "was skipped",
    RunState.EXPIRED: "expired",
    RunState.RUNNING: "runs",
}
_REASONS = frozenset(Reason)
_FAILED = frozenset({RunState.FAILED, RunState.TIMED_OUT})
# Events that tell why a run came to where it is.
_TOLD = (
    "deferred",
    "resumed",
    "refused",
    "returned",
    "released",
    "reassigned",
    "orphaned",
    "retry",
    "lock_expired",
    "cancel_timeout",
)
TOLD_EVENTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """One limit that a run needs, and what it says of the run."""

    need: Need
    usage: Usage
    message: str
    blocks: bool

    @property
    def taken(self) -> int:
        """Runs, weights or starts."""
        return self.usage.taken(self.need)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run that was not sent, with what the leader would read of it. `weight`: how much of the limit that defers it it waits for."""

    run: DueRun
    spec: JobSpec | None
    now: datetime
    late_seconds: float
    weight: int = 0
    admission: Admission = field(default_factory=lambda: Admission({}, {}))
    groups: Groups | None = None
    # The limit that defers it, and how it is used; None when there is no such limit any more.
    deferring: tuple[Need, Usage] | None = None


def rule_checks(facts: RunFacts, limits: Sequence[LimitCheck]) -> tuple[Check, ...]:
    """What lateness, policy and limits say, in the order in which placing looks at them."""
    run, spec = facts.run, facts.spec
    if spec is None:
        return ()
    skip = None
    if run.state is not RunState.DEFERRED and run.scheduled_for <= facts.now:
        skip = skip_reason(run, spec, now=facts.now, late_seconds=facts.late_seconds)
        if skip is None and facts.groups is not None:
            skip = facts.groups.skip_reason(run, spec)
    found = [_late(facts, spec), _policy(run, spec)]
    if skip is not None:
        name = "late" if skip[0] == "late" else "policy"
        said = Check(name, f"the leader skips it in its next turn ({skip[0]}): {skip[1]}", blocks=True)
        found = [said if check.name == name else check for check in found]
    if not limits:
        return (*found, Check("limit", _no_longer(run) or "it needs no limit", run.state is RunState.DEFERRED))
    return (*found, *(Check("limit", limit.message, limit.blocks) for limit in limits))


def limit_checks(facts: RunFacts) -> list[LimitCheck]:
    """Every limit that the run needs; the one that defers it first."""
    run, found = facts.run, list[LimitCheck]()
    deferred_on = run.deferred_on if run.state is RunState.DEFERRED else None
    if facts.deferring is not None:
        found.append(_deferring(replace(facts.deferring[0], weight=facts.weight), facts.deferring[1]))
    for need in facts.admission.needs.get(run.id, ()):
        if need.key != deferred_on:
            found.append(_limit(run, need, facts.admission))
    return found


def sent_reasons(row: Mapping[str, Any], events: Sequence[Mapping[str, object]]) -> list[str]:
    """What became of a run that was sent or is over, newest first; `row` and `events` are as they are shown."""
    state, reason = RunState(row["state"]), str(row["reason"] or "")
    last = next((event for event in reversed(events) if event["to_state"] == state and event["message"]), None)
    message = str(last["message"]) if last is not None else str(row["error_summary"] or "")
    # How an attempt ended is said in words; why a run was not started is a name that documents and filters use.
    why = message if message and reason in _REASONS else ": ".join(part for part in (reason, message) if part)
    at_executor = row["token"] and row["assigned_worker_id"]
    where = f" on {row['executor'] or 'executor ' + str(row['assigned_worker_id'])}" if at_executor else ""
    first = f"it {_VERBS.get(state, f'is {state.value}')}{where}" + (f": {why}" if why else "")
    output = f"the last line of its output: {row['last_line']}" if state in _FAILED and row["last_line"] else ""
    used = state in _FAILED and row["max_attempts"] > 1
    tries = f"it was attempt {row['attempt']} of {row['max_attempts']}" if used else ""
    remedy = f"{_REMEDIES[reason]}" if row["token"] is None and reason in _REMEDIES else ""
    told = [event for event in events if event["type"] in _TOLD and event is not last][-TOLD_EVENTS:]
    before = [f"{event['at']:%Y-%m-%d %H:%M:%S} UTC {event['type']}: {event['message']}" for event in reversed(told)]
    return [text for text in (first, output, tries, remedy, *before) if text]


def waits_for_step(run_id: int, steps: Mapping[str, Any]) -> str:
    """Why a cancel that was asked for has not ended the run: its step is not cancelable, and no kill was asked for; "" for another cause.

    `steps` are the `definition` of all, those that were `started`, and `cancel_mode`.
    """
    definition, started = steps["definition"] or [], steps["started"] or []
    index = started[-1]["index"] if started else 0
    if steps["cancel_mode"] == "kill" or index >= len(definition) or definition[index].get("cancelable", True):
        return ""
    step = definition[index]["id"]
    return (
        f"its cancel waits for step {step!r}, which is not cancelable: the run ends when the step does; "
        f"an operator ends it at once with `toban run kill {run_id}`"
    )


def _late(facts: RunFacts, spec: JobSpec) -> Check:
    run = facts.run
    limit = 0.0 if run.started else late_limit(spec, facts.late_seconds)
    ends = []
    if limit > 0:
        late_at = max(run.scheduled_for, run.not_before or run.scheduled_for) + timedelta(seconds=limit)
        ends.append(f"SKIPPED (late) after {late_at:%Y-%m-%d %H:%M:%S} UTC")
    until = wait_until(run, replace(spec, skip_late_after_seconds=0), 0.0)
    if until is not None:
        ends.append(f"EXPIRED (max_wait_seconds) after {until:%Y-%m-%d %H:%M:%S} UTC")
    return Check("late", f"unless it starts before, it is {', '.join(ends)}" if ends else "it may wait for ever")


def _policy(run: DueRun, spec: JobSpec) -> Check:
    policy = spec.concurrency.policy_for(run.origin)
    among = f"group {run.group}" if run.group is not None else "its schedule" if run.slot is not None else "no group"
    return Check("policy", f"policy {policy} over the runs of {among} lets it start")


def _deferring(need: Need, usage: Usage) -> LimitCheck:
    """A deferred run waits also when there is room: until its turn has come."""
    full = need.weight > room(need, usage)
    text = waits_for(need, usage) if full else f"limit {need.key} has room: it is resumed when its turn comes"
    return LimitCheck(need=need, usage=usage, message=text, blocks=True)


def _limit(run: DueRun, need: Need, admission: Admission) -> LimitCheck:
    usage, fits = admission.usage_of(need), admission.admits(run, need)
    taken = usage.taken(need)
    if need.is_ignored:
        text = f"it ignores limit {need.key} (--ignore-limits)"
    elif fits:
        text = f"limit {need.key} has room ({taken} of {need.capacity} are taken)"
    elif need.weight <= room(need, usage):
        text = f"other runs wait for limit {need.key}, and it comes behind them"
    else:
        text = waits_for(need, usage)
    return LimitCheck(need=need, usage=usage, message=text, blocks=not fits)


def _no_longer(run: DueRun) -> str:
    if run.state is not RunState.DEFERRED:
        return ""
    return f"limit {run.deferred_on} is no more: it is resumed in the leader's next turns"
