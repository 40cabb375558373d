"""Why a run that was not sent yet waits: what the leader looks at before it sends the run, each in one sentence for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from toban_coordinator.decide.cluster.diagnose.fleet import BEAT_LATE
from toban_coordinator.decide.cluster.leader_health import MAX_SKEW_SECONDS
from toban_coordinator.decide.placement.assign import room, usable
from toban_domain.job import ANY_ISOLATION, STEPS_LABEL, SelectorSpec
from toban_domain.lease import ExecutorState
from toban_domain.placement import ExecutorLoad

# A refusal that is older than this is not what a run waits for, seconds.
REFUSED_LATELY = 60.0
# Executors that a text names.
_NAMED = 5
_STATES = {
    ExecutorState.DRAINING: "draining",
    ExecutorState.DETACHED: "detached",
    ExecutorState.CUT: "cut off",
}
_STARTED_WITH = {"container": "SCHEDULER_CONTAINER_ENGINE", "kubernetes": "SCHEDULER_KUBERNETES_API"}
"""What makes an executor run these steps."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be so before a run is sent. `blocks`: it is not."""

    name: str
    message: str
    blocks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRun:
    """A run that was not sent. `selector` None: its definition cannot be read. `refused_at` is of the last thing that happened to it, if that
    was a refusal."""

    scheduled_for: datetime
    not_before: datetime | None
    selector: SelectorSpec | None
    refused_at: datetime | None = None
    refusal: str = ""
    # Of the external step with which it goes on; "" = that step needs an executor.
    worker_type: str = ""
    # What its lateness, its policy and its limits say.
    rules: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSeen:
    """The leader as a read showed it: the last beat (None = no coordinator has led yet), and whether the database is the one that it has settled
    on. `skew`: its clock minus PostgreSQL's, seconds; None = not known."""

    beaten_at: datetime | None
    resigned: bool
    settled: bool
    worker_id: int = 0
    skew: float | None = None


def checks(
    run: WaitingRun, leader: LeaderSeen, executors: Sequence[ExecutorLoad], now: datetime, *, fresh: float
) -> list[Check]:
    """What the leader looks at, in its order; `executors` are those that are not off, `now` is PostgreSQL's time, and `fresh` how old the
    heartbeat of one that gets work may be, seconds."""
    blocked = _no_leader(leader, now)
    unplaced = "" if run.worker_type else _no_executor_takes_it(run, executors, now, fresh)
    fits = (
        f"workers of type {run.worker_type} do its step" if run.worker_type else "an executor that fits has a free slot"
    )
    return [
        _due(run, now),
        _clock(leader),
        Check("leader", blocked or f"coordinator {leader.worker_id} leads", bool(blocked)),
        *run.rules,
        Check("executor", unplaced or fits, bool(unplaced)),
        Check("turn", _its_turn(run, now)),
    ]


def first_of(found: Sequence[Check]) -> str:
    """What stands in the way first; without an obstacle what comes last."""
    return next((check.message for check in found if check.blocks), found[-1].message)


def candidate_reason(
    executor: ExecutorLoad,
    executors: Sequence[ExecutorLoad],
    selector: SelectorSpec | None,
    now: datetime,
    fresh: float,
) -> str:
    """Why one executor cannot take a run now; "" when it can."""
    if selector is None:
        return "the definition cannot be read"
    missing = {key: value for key, value in selector.needed.items() if executor.labels.get(key) != value}
    if missing:
        has = {key: executor.labels[key] for key in missing if key in executor.labels}
        return f"lacks {_labels(missing)}" + (f" (has {_labels(has)})" if has else "")
    if not selector.fits(executor.labels):
        steps = executor.labels[STEPS_LABEL]
        return f"runs jobs with {steps} steps only ({_labels({STEPS_LABEL: steps})})"
    if not executor.takes(_of_any_class(selector)):
        return f"its group {executor.group!r} runs jobs with the labels {_labels(executor.job_labels)} only"
    if not executor.takes(selector):
        return f"is of class {executor.isolation}, and the job needs isolation: {selector.isolation}"
    if executor not in usable(executors, now, fresh=fresh):
        return _state(executor, now, fresh)
    busy = min(executor.held, executor.slots)
    return f"all its slots are busy ({busy} of {executor.slots})" if busy == executor.slots else ""


def waits_for_executor(
    run_id: int, *, worker_id: int, node_id: str, fenced_at: datetime | None, until: datetime
) -> str:
    """Why an ORPHANED run does not go on: its processes may still run (`on_lease_loss: continue`)."""
    where = f"executor {worker_id}" + (f" on {node_id}" if node_id else "")
    since = f" at {_moment(fenced_at)}" if fenced_at else ""
    return (
        f"{where} was fenced{since}, and the job continues there if it still runs (on_lease_loss: continue); without a report the run goes on "
        f"elsewhere at {_moment(until)}, or at once after `toban run lost {run_id}`"
    )


def waits_for_worker(
    worker_type: str, worker: str | None, *, offered_at: datetime, claimed_at: datetime | None, until: datetime | None
) -> str:
    """Why a run does not go on while its external step is offered, or claimed until `until`."""
    if worker is None or claimed_at is None or until is None:
        since = f"offered to external workers of type {worker_type} since {_moment(offered_at)}"
        return f"its step is {since}, and none has claimed it; see that one runs and claims this type"
    return f"external worker {worker} has claimed its step at {_moment(claimed_at)}; unless extended, the lock ends at {_moment(until)}"


def _due(run: WaitingRun, now: datetime) -> Check:
    if run.scheduled_for > now:
        return Check("due", f"it is not due before {_moment(run.scheduled_for)}", blocks=True)
    if run.not_before is not None and run.not_before > now:
        return Check("due", f"its next attempt is not due before {_moment(run.not_before)}", blocks=True)
    return Check("due", f"it was due at {_moment(max(run.scheduled_for, run.not_before or run.scheduled_for))}")


def _clock(leader: LeaderSeen) -> Check:
    """Only slots need the clock of a machine: what is due already goes by PostgreSQL's."""
    if leader.skew is None:
        return Check("clock", "no clock of a leader is known; runs are due by PostgreSQL's clock")
    if abs(leader.skew) > MAX_SKEW_SECONDS:
        text = f"the leader's clock is {leader.skew:+.1f} s off PostgreSQL's: slots do not become runs, and runs that exist go on"
        return Check("clock", text)
    return Check("clock", f"the leader's clock is {leader.skew:+.3f} s off PostgreSQL's, which decides what is due")


def _no_leader(leader: LeaderSeen, now: datetime) -> str:
    if leader.beaten_at is None or leader.resigned or now - leader.beaten_at > timedelta(seconds=BEAT_LATE):
        return "no coordinator leads, so nothing is started; see that one runs and reaches PostgreSQL and Redis"
    if not leader.settled:
        return "PostgreSQL was restored or has failed over, so nothing is sent until a whole lease has passed"
    return ""


def _no_executor_takes_it(run: WaitingRun, executors: Sequence[ExecutorLoad], now: datetime, fresh: float) -> str:
    if run.selector is None:
        return "its definition cannot be read; the leader's log says why"
    if not executors:
        return "no executor is registered; start one"
    working = usable(executors, now, fresh=fresh)
    if not working:
        return f"no executor takes work ({_states(executors, now, fresh)}); `toban executor list` shows them"
    fitting = [executor for executor in working if executor.takes(run.selector)]
    if not fitting:
        return _no_executor_fits(run.selector, executors, now, fresh)
    if room(fitting, may_wait=False) == 0:
        slots = sum(executor.slots for executor in fitting)
        held = sum(min(executor.held, executor.slots) for executor in fitting)
        which = "that have its labels" if run.selector.needed else "that take work"
        return f"all slots of the executors{_of_class(run.selector)} {which} are busy ({held} of {slots} on {len(fitting)})"
    return ""


def _no_executor_fits(selector: SelectorSpec, executors: Sequence[ExecutorLoad], now: datetime, fresh: float) -> str:
    labels = _labels(selector.needed)
    others = [executor for executor in executors if executor.takes(_of_any_class(selector))]
    if others and not any(executor.takes(selector) for executor in others):
        return (
            f"no executor{_of_class(selector)} fits the job ({_shared(others)}); start one{_of_class(selector)}, "
            f"or take `isolation: {selector.isolation}` out of the job"
        )
    having = [executor for executor in executors if selector.fits(executor.labels)]
    if having and not any(executor.takes(selector) for executor in having):
        group, needed = min((executor.group, _labels(executor.job_labels)) for executor in having)
        return (
            f"executors that fit its selector run only jobs that their group allows (group {group!r}: jobs with the labels {needed}); "
            "give the job these labels, or change the group: toban group set"
        )
    having = [executor for executor in having if executor.takes(selector)]
    if having and (selector.needed or _of_class(selector)):
        which = _of_class(selector) + (f" with the labels of its selector ({labels})" if selector.needed else "")
        return f"no executor{which} takes work ({_states(having, now, fresh)})"
    if not selector.needed:
        return (
            f"every executor that takes work runs container or kubernetes steps only ({STEPS_LABEL}); start one without"
        )
    remedy = _STARTED_WITH.get(selector.steps, "SCHEDULER_LABELS")
    return f"no executor has the labels of its selector ({labels}); start one with {remedy}, or change the job"


def _its_turn(run: WaitingRun, now: datetime) -> str:
    if run.refused_at is not None and now - run.refused_at <= timedelta(seconds=REFUSED_LATELY):
        return f"an executor refused it at {_moment(run.refused_at)} ({run.refusal}); it is placed again"
    return "nothing stands in its way: the leader places it in its next turns; if it stays, ask `toban doctor`"


def _states(executors: Sequence[ExecutorLoad], now: datetime, fresh: float) -> str:
    """ "2 draining, 1 silent": of executors that take no work."""
    counts = Counter(_state(executor, now, fresh) for executor in executors)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _state(executor: ExecutorLoad, now: datetime, fresh: float) -> str:
    if executor.drained:
        return "draining"
    if executor.state is not ExecutorState.ON:
        return _STATES[executor.state]
    silent = now - executor.last_heartbeat_at > timedelta(seconds=fresh)
    return "silent" if silent else "with its former process not over"


def _of_any_class(selector: SelectorSpec) -> SelectorSpec:
    return replace(selector, isolation=ANY_ISOLATION)


def _of_class(selector: SelectorSpec) -> str:
    return "" if selector.isolation == ANY_ISOLATION else f" of class {selector.isolation}"


def _shared(executors: Sequence[ExecutorLoad]) -> str:
    """Those that only their class keeps from the run, by their numbers, the first of many."""
    numbers = sorted(executor.worker_id for executor in executors)
    if len(numbers) == 1:
        return f"executor {numbers[0]} fits otherwise, but is shared"
    more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
    return f"executors {', '.join(map(str, numbers[:_NAMED]))}{more} fit otherwise, but are shared"


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
