"""Which due run goes to which executor, and which is skipped (docs/architecture.md, the leader's loops)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from toban_coordinator.decide.limits.groups import Groups
from toban_coordinator.decide.limits.limits import Admission, Need, waits_for
from toban_domain.dispatches import external_step, next_step, worker_type
from toban_domain.job import JobSpec, StepSpec
from toban_domain.lease import ExecutorState
from toban_domain.placement import DueRun, ExecutorLoad
from toban_domain.run import RunState
from toban_domain.settings import Settings
from toban_domain.transitions import Defer, Finish, Offer, Placement, Release

# New work goes only to executors whose last heartbeat is at most this old, seconds.
FRESH_SECONDS = 2.0
# The pace of turns while runs wait for slots: seconds for each slot of the executors that take work, and at most; with orders that wait there, more.
PACE_SECONDS_A_SLOT = 0.001
MAX_PACE_SECONDS, MAX_QUEUED_PACE_SECONDS = 0.03, 0.05
# Runs that one plan moves.
MOST = 500


@dataclass(frozen=True, slots=True)
class Placed:
    """A due run and the executor that it goes to. `may_wait`: also when that has no slot free by then."""

    run: DueRun
    executor: ExecutorLoad
    may_wait: bool = False


@dataclass(frozen=True, slots=True)
class Offered:
    """A due run that goes on with an external step: it is offered, and needs no executor."""

    run: DueRun
    step: StepSpec

    def offer(self, token: int, spec: JobSpec) -> Offer:
        """The move that offers it."""
        return Offer(
            run_id=self.run.id,
            token=token,
            worker_type=worker_type(self.step),
            next_step=next_step(spec, self.run.first_step or 0),
            phase=self.step.id if len(spec.steps) > 1 else "",
        )


@dataclass(frozen=True, slots=True)
class Moves:
    """What one transaction writes; `due` are the runs that are placed and offered."""

    placements: Sequence[Placement]
    offers: Sequence[Offer]
    releases: Sequence[Release]
    skips: Sequence[Finish]
    defers: Sequence[Defer]
    due: Mapping[int, DueRun]


def fresh_seconds(settings: Settings) -> float:
    """How old a heartbeat may be for new work: FRESH_SECONDS, more only where executors send them less often."""
    return max(FRESH_SECONDS, 2 * settings["heartbeat_interval_seconds"])


def without_queues(executors: Sequence[ExecutorLoad], needing: Sequence[JobSpec]) -> list[ExecutorLoad]:
    """Executors that a run which needs a slot fits get nothing beyond their slots: those that wait there would take each slot that becomes free."""
    return [
        replace(e, queue=0) if e.queue and any(e.takes(spec.selector) for spec in needing) else e for e in executors
    ]


def usable(
    executors: Sequence[ExecutorLoad],
    now: datetime,
    avoided: Collection[str] = frozenset(),
    *,
    fresh: float = FRESH_SECONDS,
) -> list[ExecutorLoad]:
    """Executors that take new work: on, with a heartbeat in the last `fresh` seconds, not drained, not `avoided`, and the only incarnation of their
    instance that is not off.

    While an older incarnation is not off, neither it nor its successor gets work: two could run on one host.
    """
    incarnations: dict[str, int] = {}
    for executor in executors:
        incarnations[executor.instance] = incarnations.get(executor.instance, 0) + 1
    oldest = now - timedelta(seconds=fresh)
    return [
        e
        for e in executors
        if e.state is ExecutorState.ON
        and not e.drained
        and e.incarnation not in avoided
        and e.last_heartbeat_at >= oldest
        and incarnations[e.instance] == 1
    ]


def room(executors: Sequence[ExecutorLoad], *, may_wait: bool) -> int:
    """How many runs these executors can take now."""
    return sum(e.room(may_wait=may_wait) for e in executors)


def pace_seconds(executors: Sequence[ExecutorLoad]) -> float:
    """How far apart turns are while runs wait for slots of these executors, so that several freed slots share one transaction and one order.

    A turn costs as much as the placement of dozens of runs, whatever it places; of few slots one is not left free for long. Orders that wait at the
    executors fill a freed slot meanwhile.
    """
    places = sum(e.slots + e.queue for e in executors)
    most = MAX_QUEUED_PACE_SECONDS if places and all(e.queue for e in executors) else MAX_PACE_SECONDS
    return min(most, PACE_SECONDS_A_SLOT * places) if places else most


class Board:
    """The free slots while a batch is placed: least loaded first, then the lower reported load, then the freshest heartbeat."""

    def __init__(self, executors: Sequence[ExecutorLoad]) -> None:
        # A full one has no room before the next turn: each run of a batch would pass over it.
        self._executors = {e.incarnation: e for e in executors if e.room(may_wait=True)}
        self._held = {e.incarnation: e.held for e in self._executors.values()}

    def take(
        self, spec: JobSpec, *, prefer: str | None = None, left_out: Collection[str] = (), may_wait: bool = False
    ) -> ExecutorLoad | None:
        """The executor for one more run of `spec`, its slot taken; None when none that fits, and is not `left_out`, has one.

        A run that `may_wait` goes to an executor without a free slot when no other has one.
        """
        fitting = [
            e
            for e in self._executors.values()
            if self._held[e.incarnation] < e.slots + (e.queue if may_wait else 0)
            and e.takes(spec.selector)
            and e.incarnation not in left_out
        ]
        if not fitting:
            return None
        preferred = (e for e in fitting if e.incarnation == prefer and self._held[e.incarnation] < e.slots)
        chosen = next(preferred, None) or min(fitting, key=self._rank)
        self._held[chosen.incarnation] += 1
        return chosen

    def has_room(self) -> bool:
        """Whether a slot is left."""
        return any(self._held[e.incarnation] < e.slots for e in self._executors.values())

    def _rank(self, executor: ExecutorLoad) -> tuple[float, float, float, int]:
        used = self._held[executor.incarnation] / executor.slots
        return (used, executor.load, -executor.last_heartbeat_at.timestamp(), executor.worker_id)


@dataclass(slots=True)
class AssignPlan:
    """`releases` come before `skips` and `defers` in the write: a run that was placed ahead is skipped, or deferred, by way of PENDING."""

    # The slots that are left when `placed` is.
    board: Board
    placed: list[Placed] = field(default_factory=list)
    offers: list[Offered] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    skips: list[Finish] = field(default_factory=list)
    defers: list[Defer] = field(default_factory=list)
    # Definitions of runs that found no free slot on an executor that fits them.
    unplaced: set[tuple[int, int]] = field(default_factory=set)
    # Those of them of which a run may not wait at an executor, or not now.
    need_slots: set[tuple[int, int]] = field(default_factory=set)


def plan(
    due: Sequence[DueRun],
    executors: Sequence[ExecutorLoad],
    specs: Mapping[tuple[int, int], JobSpec],
    *,
    now: datetime,
    late_seconds: float,
    most: int = MOST,
    admission: Admission | None = None,
    groups: Groups | None = None,
    left_out: Mapping[int, Collection[str]] = MappingProxyType({}),
    may_wait: Callable[[JobSpec, int], bool] = lambda _spec, _lost_count: False,
) -> AssignPlan:
    """Places `due` in its order on `executors`, which are usable, and moves at most `most` runs.

    A definition without a spec cannot be placed. `late_seconds`: the setting for late runs, 0 = never late. Without an `admission` no run
    has limits, and without `groups` none has a group. `left_out`: by run, the incarnations that it does not go to now. `may_wait`: whether a run of
    this definition that was lost so often may wait at an executor for a slot, as far as its limits allow.
    """
    board = Board(executors)
    made = AssignPlan(board)
    for run in due:
        if len(made.placed) + len(made.offers) + len(made.skips) + len(made.defers) >= most:
            break
        spec = specs.get((run.definition_id, run.definition_version))
        if spec is None:
            made.unplaced.add((run.definition_id, run.definition_version))
            continue
        reason = skip_reason(run, spec, now=now, late_seconds=late_seconds)
        if reason is None and groups is not None:
            reason = groups.skip_reason(run, spec)
        if reason:
            _skip(made, run, *reason)
            continue
        need = admission.blocked_by(run) if admission is not None else None
        if admission is not None and need is not None:
            admission.defer(need)
            _defer(made, run, need, wait_until(run, spec, late_seconds))
            continue
        step = external_step(spec, run.first_step or 0)
        if step is not None:
            made.offers.append(Offered(run, step))
        elif not _place(made, run, spec, left_out, may_wait=may_wait(spec, run.lost_count), admission=admission):
            continue
        if admission is not None:
            admission.take(run)
    if groups is not None:
        made.skips += [_replaced(old, new) for old, new in groups.replaced.items()]
    return made


def _place(
    made: AssignPlan,
    run: DueRun,
    spec: JobSpec,
    left_out: Mapping[int, Collection[str]],
    *,
    may_wait: bool,
    admission: Admission | None,
) -> bool:
    """Whether there is an executor for it."""
    held_back = may_wait and admission is not None and not admission.may_hold_early(run)
    waits, definition = may_wait and not held_back, (run.definition_id, run.definition_version)
    taken = made.board.take(spec, prefer=run.placed_on, left_out=left_out.get(run.id, ()), may_wait=waits)
    if taken is not None:
        made.placed.append(Placed(run, taken, waits))
    elif run.id not in left_out:
        # One that is left out somewhere waits by itself: other runs of its job may find an executor.
        made.unplaced.add(definition)
        if not waits:
            made.need_slots.add(definition)
    return taken is not None


def skip_reason(run: DueRun, spec: JobSpec, *, now: datetime, late_seconds: float) -> tuple[str, str] | None:
    """(reason, message) when a due run is not to start any more; None when it is."""
    if run.overlaps and run.group is None and not run.started and spec.concurrency.policy_for(run.origin) == "forbid":
        return "overlap", "an earlier run of the same schedule is still live (policy forbid)"
    limit = late_limit(spec, late_seconds)
    # A run that is spread is late from its own time on.
    due = max(run.scheduled_for, run.not_before or run.scheduled_for)
    if limit > 0 and not run.started and now - due > timedelta(seconds=limit):
        late = (now - due).total_seconds()
        return "late", f"{late:.0f} s after its time, the limit is {limit:g} s"
    return None


def late_limit(spec: JobSpec, late_seconds: float) -> float:
    """Seconds after which a run of this definition is late; 0 = never."""
    return late_seconds if spec.skip_late_after_seconds is None else float(spec.skip_late_after_seconds)


def wait_until(run: DueRun, spec: JobSpec, late_seconds: float) -> datetime | None:
    """When a deferred run has waited for too long, or is late; None = never."""
    waits = [float(spec.max_wait_seconds), 0.0 if run.started else late_limit(spec, late_seconds)]
    limits = [seconds for seconds in waits if seconds > 0]
    return run.scheduled_for + timedelta(seconds=min(limits)) if limits else None


def _release(made: AssignPlan, run: DueRun, reason: str) -> None:
    if run.state is RunState.ASSIGNED:
        made.releases.append(
            Release(
                run_id=run.id,
                source=RunState.ASSIGNED,
                token=None,
                attempt=run.attempt,
                lost_count=run.lost_count,
                event="released",
                message=reason,
            )
        )


def _defer(made: AssignPlan, run: DueRun, need: Need, until: datetime | None) -> None:
    _release(made, run, "deferred")
    made.defers.append(
        Defer(run_id=run.id, key=need.key, weight=need.weight, wait_until=until, message=waits_for(need))
    )


def _replaced(run_id: int, by: int) -> Finish:
    return Finish(
        run_id=run_id,
        source=RunState.DEFERRED,
        token=None,
        target=RunState.SKIPPED,
        reason="replaced",
        message=f"run {by} is newer (policy replace)",
    )


def _skip(made: AssignPlan, run: DueRun, reason: str, message: str) -> None:
    _release(made, run, reason)
    made.skips.append(
        Finish(
            run_id=run.id,
            source=RunState.PENDING,
            token=None,
            target=RunState.SKIPPED,
            reason=reason,
            message=message,
        )
    )


def name_ahead(
    runs: Sequence[tuple[int, JobSpec]], executors: Sequence[ExecutorLoad]
) -> list[tuple[int, ExecutorLoad]]:
    """Names an executor for runs that are not due yet: spread by slots, taking none. A run that none fits gets no name."""
    named: list[tuple[int, ExecutorLoad]] = []
    counts = {e.incarnation: 0 for e in executors}
    for run_id, spec in runs:
        if external_step(spec, 0) is not None:
            continue
        fitting = [e for e in executors if e.takes(spec.selector)]
        if fitting:
            chosen = min(fitting, key=lambda e: (counts[e.incarnation] / e.slots, e.worker_id))
            counts[chosen.incarnation] += 1
            named.append((run_id, chosen))
    return named
