"""Checks of the processes: who leads, coordinators, executors, their clocks, versions, disks, certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from toban_coordinator.decide.cluster.diagnose.certificate import certificate
from toban_coordinator.decide.cluster.diagnose.isolation import isolation
from toban_coordinator.decide.cluster.leader_health import MAX_SKEW_SECONDS
from toban_domain.finding import Finding
from toban_domain.job import STEPS_LABEL

# Clocks, seconds off PostgreSQL's. A coordinator beyond the second fires nothing; an executor's clock stands in logs and reports only.
COORDINATOR_SKEW = (1.0, MAX_SKEW_SECONDS)
EXECUTOR_SKEW = (2.0, 60.0)
# Free bytes of an executor's state directory: below the first new output may soon not fit, below the second jobs wait in their writes.
DISK_BYTES = (2 << 30, 256 << 20)
# Seconds.
BEAT_LATE = 3.0
TICK_LATE = 5.0
COORDINATOR_LATE = 5.0
EXECUTOR_LATE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderFacts:
    """The leader row; ages in seconds, `tick_age` None before the first tick."""

    epoch: int
    worker_id: int
    address: str
    resigned: bool
    settled: bool
    beat_age: float
    tick_age: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorFacts:
    """One coordinator, seen `age` seconds ago."""

    worker_id: int
    node_id: str
    address: str
    version: str
    role: str
    age: float
    clock_skew_seconds: float | None
    certificate_not_after: datetime | None

    @property
    def subject(self) -> str:
        """How it is called."""
        return f"coordinator {self.worker_id} on {self.node_id} ({self.address})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFacts:
    """One executor whose last heartbeat is `age` seconds old."""

    worker_id: int
    node_id: str
    address: str
    version: str
    state: str
    age: float
    lease_seconds: float
    off_reason: str
    drain_reason: str
    clock_skew_seconds: float | None
    disk_free_bytes: int | None
    certificate_not_after: datetime | None
    quarantined_outcomes: int
    quarantined_chunks: int
    unreachable: bool
    isolation: str
    isolation_details: Sequence[str]
    labels: Mapping[str, str]

    @property
    def subject(self) -> str:
        """How it is called."""
        return f"executor {self.worker_id} on {self.node_id} ({self.address})"


def leader(facts: LeaderFacts) -> list[Finding]:
    """A coordinator leads, beats, and its loops turn."""
    value = f"{facts.address} (worker {facts.worker_id}, epoch {facts.epoch})"
    if not facts.epoch or facts.resigned or facts.beat_age > BEAT_LATE:
        why = "has never led" if not facts.epoch else f"has led for {facts.beat_age:.0f} s"
        return [
            Finding(
                name="leader",
                subject="cluster",
                value="none",
                status="error",
                message=f"no coordinator {why}: scheduling and dispatch are stopped",
                remedy="see that a coordinator runs; the check `leader` of its /healthz and its log have the reason: docs/runbooks/TobanNoLeader.md",
            )
        ]
    found = [Finding(name="leader", subject="cluster", value=value)]
    if facts.tick_age is not None and facts.tick_age > TICK_LATE:
        found = [
            Finding(
                name="leader",
                subject="cluster",
                value=f"{value}, last tick {facts.tick_age:.0f} s ago",
                status="error",
                message="the leader beats, but its loops do not turn: slots may be late",
                remedy="look at its log and at the load of PostgreSQL; `toban cluster demote` lets another one lead",
            )
        ]
    if not facts.settled:
        found.append(
            Finding(
                name="leader",
                subject="database",
                value="not settled",
                status="warning",
                message="PostgreSQL was restored or has failed over: nothing is dispatched until a whole lease has passed",
                remedy="wait some seconds and look again",
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedEpoch:
    """An executor that was refused `age` seconds ago: it could not prove its epoch, which is above the leader's."""

    instance: str
    node_id: str
    epoch: int
    reason: str
    age: float


def epochs(items: Sequence[RefusedEpoch]) -> Finding:
    """No executor is kept out by an epoch that it cannot prove."""
    if not items:
        return Finding(name="epoch", subject="cluster", value="no executor is above the leader's")
    first = items[0]
    others = f", and {len(items) - 1} more" if len(items) > 1 else ""
    return Finding(
        name="epoch",
        subject=f"executor {first.instance} on {first.node_id}",
        value=f"{first.epoch}{others}",
        status="error",
        message=f"it was refused {first.age:.0f} s ago, because it knows an epoch above the leader's: {first.reason}",
        remedy=f"`toban cluster adopt-epoch {first.epoch}` if its state directory is of this cluster and PostgreSQL was restored, "
        "else give it a new state directory",
    )


def coordinators(items: Sequence[CoordinatorFacts], *, now: datetime, version: str) -> list[Finding]:
    """Each one: here, its clock, its version, its certificate. `version` is that of the one that answers."""
    found: list[Finding] = []
    for item in items:
        if item.age > COORDINATOR_LATE:
            found.append(_lost_coordinator(item))
            continue
        found.append(Finding(name="coordinator", subject=item.subject, value=item.role))
        found += _clock(item.subject, item.clock_skew_seconds, COORDINATOR_SKEW, _COORDINATOR_CLOCK)
        found += _version(item.subject, item.version, version)
        found += certificate(item.subject, item.certificate_not_after, now)
    alone = sum(item.age <= COORDINATOR_LATE for item in items) == 1
    if alone:
        found.append(
            Finding(
                name="coordinator",
                subject="cluster",
                value="one",
                status="warning",
                message="there is one coordinator: none takes over when it dies",
                remedy="start a second one on another machine",
            )
        )
    return found


def executors(items: Sequence[ExecutorFacts], *, now: datetime, version: str) -> list[Finding]:
    """Each one: here, working, its clock, disk, quarantine, processes, isolation, version, certificate; and that there is one that takes work."""
    found: list[Finding] = []
    for item in items:
        state = _state(item)
        found.append(state)
        if item.state == "off" or item.age > EXECUTOR_LATE:
            continue
        found += _clock(item.subject, item.clock_skew_seconds, EXECUTOR_SKEW, _EXECUTOR_CLOCK)
        found += _disk(item)
        found += [_quarantine(item), _processes(item)]
        steps = item.labels.get(STEPS_LABEL, "")
        found.append(isolation(item.subject, item.isolation, item.isolation_details, guarded_steps=steps))
        found += _version(item.subject, item.version, version)
        found += certificate(item.subject, item.certificate_not_after, now)
    if not any(item.state == "on" and item.age <= EXECUTOR_LATE for item in items):
        found.append(
            Finding(
                name="executor",
                subject="cluster",
                value="none takes work",
                status="error",
                message="no executor takes work: every run waits",
                remedy="start one (`toban dev` starts those of a local stack), or `toban executor undrain` one that is drained",
            )
        )
    return found


_COORDINATOR_CLOCK = "a coordinator whose clock is more than 2 s off fires nothing"
_EXECUTOR_CLOCK = "times in its logs and reports are off by that much (leases do not depend on it)"


def _lost_coordinator(item: CoordinatorFacts) -> Finding:
    return Finding(
        name="coordinator",
        subject=item.subject,
        value=f"not seen for {item.age:.0f} s",
        status="error",
        message="it is gone without having been stopped in order",
        remedy="see whether its process and machine run; when it was taken away on purpose this line goes within an hour",
    )


def _state(item: ExecutorFacts) -> Finding:
    if item.state == "off":
        return Finding(
            name="executor",
            subject=item.subject,
            value="off",
            status="warning",
            message=f"it is gone and has not come back: {item.off_reason or 'no reason is known'}",
            remedy="see whether its process and machine run; when it was stopped on purpose this line goes within an hour",
        )
    if item.age > EXECUTOR_LATE:
        return Finding(
            name="executor",
            subject=item.subject,
            value=f"silent for {item.age:.0f} s",
            status="error",
            message=f"its heartbeats do not arrive: {item.lease_seconds:g} s after the last its jobs are ended and run elsewhere",
            remedy="see whether its process runs and reaches a coordinator; its log and /healthz say what is wrong",
        )
    if item.state == "on":
        return Finding(name="executor", subject=item.subject, value="on")
    remedies = {
        "draining": "`toban executor undrain` lets it work again",
        "detached": "it works again when its heartbeats come on time; a detach by an operator ends with its process",
        "cut": "it registers again by itself; an order to it was open for too long: see that coordinators reach its address",
    }
    why = f": {item.drain_reason}" if item.state == "draining" and item.drain_reason else ""
    return Finding(
        name="executor",
        subject=item.subject,
        value=item.state,
        status="warning",
        message=f"it takes no new work{why}",
        remedy=remedies.get(item.state, "see its log"),
    )


def _clock(subject: str, skew: float | None, limits: tuple[float, float], effect: str) -> list[Finding]:
    if skew is None:
        return []
    value = f"{skew:+.2f} s against PostgreSQL"
    if abs(skew) <= limits[0]:
        return [Finding(name="clock", subject=subject, value=value)]
    return [
        Finding(
            name="clock",
            subject=subject,
            value=value,
            status="error" if abs(skew) > limits[1] else "warning",
            message=f"its clock is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} PostgreSQL's; {effect}",
            remedy="let NTP (chrony, systemd-timesyncd) set the clocks of this machine and of the database's",
        )
    ]


def _disk(item: ExecutorFacts) -> list[Finding]:
    free = item.disk_free_bytes
    if free is None:
        return []
    value = f"{free / (1 << 30):.1f} GiB free"
    if free >= DISK_BYTES[0]:
        return [Finding(name="disk", subject=item.subject, value=value)]
    return [
        Finding(
            name="disk",
            subject=item.subject,
            value=value,
            status="error" if free < DISK_BYTES[1] else "warning",
            message="the disk of its state directory is nearly full: output of jobs is kept there until it is shipped",
            remedy="make room on the file system of SCHEDULER_STATE_DIR",
        )
    ]


def _quarantine(item: ExecutorFacts) -> Finding:
    outcomes, chunks = item.quarantined_outcomes, item.quarantined_chunks
    if not outcomes and not chunks:
        return Finding(name="quarantine", subject=item.subject, value="empty")
    return Finding(
        name="quarantine",
        subject=item.subject,
        value=f"{outcomes} outcomes, {chunks} log chunks",
        status="warning",
        message="what was refused is kept and sent again each minute; a run whose outcome stays refused for 600 s ends as FAILED",
        remedy="its log has the text of the refusal: docs/runbooks/TobanExecutorQuarantine.md",
    )


def _processes(item: ExecutorFacts) -> Finding:
    if not item.unreachable:
        return Finding(name="processes", subject=item.subject, value="reachable")
    return Finding(
        name="processes",
        subject=item.subject,
        value="some refuse signals",
        status="error",
        message="processes of jobs refuse its signals (EPERM), so it takes no new work",
        remedy="end them as their user and restart it: docs/runbooks/TobanProcessesUnreachable.md",
    )


def _version(subject: str, theirs: str, ours: str) -> list[Finding]:
    if theirs == ours:
        return [Finding(name="version", subject=subject, value=theirs)]
    return [
        Finding(
            name="version",
            subject=subject,
            value=theirs or "unknown",
            status="warning",
            message=f"it runs another release than the coordinator that answers ({ours})",
            remedy="finish the upgrade: neighbouring releases work together, but not for long",
        )
    ]
