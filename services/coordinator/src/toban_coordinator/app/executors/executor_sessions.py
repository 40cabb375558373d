"""Incarnations of executors: register, heartbeat. Grants are conditional on the executor's row, not on leadership."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from toban_coordinator.app.executors.death_claims import DeathClaims
from toban_coordinator.app.executors.epoch_claims import Claim, EpochClaims, Presented
from toban_coordinator.app.executors.group_admission import GroupAdmission
from toban_coordinator.app.executors.incarnation_keys import valid_incarnation
from toban_coordinator.app.executors.lease_grants import Answer, LeaseGrants
from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.decide.runs.report import Report
from toban_coordinator.ports.leader import LeaderSource, LeaderView, ServerClock
from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.ports.worker_registry import MemberMirror
from toban_coordinator.store.executors import executors, freezes
from toban_coordinator.store.placement import queued_orders
from toban_coordinator.store.runs.unresolved_attempts import Named
from toban_domain.epoch import EpochProof, term_of
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import DEFAULT_GROUP
from toban_domain.incarnation_key import hash_key
from toban_domain.job import ISOLATED, SHARED
from toban_domain.lease import ExecutorState
from toban_domain.outcome import AttemptKey, StepResult
from toban_domain.progress import Progress
from toban_domain.settings import SETTINGS
from toban_fencing.executor_lease import HOLD_MARGIN
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource
from toban_store.pool import Pool

DEFAULT_LEASE_MS = int(1000 * SETTINGS["executor_lease_seconds"].default)
MAX_JOBS = "max_jobs_per_worker"
KEY_BYTES = 32
MAX_SLOTS = 10_000
# Each is an event of the run.
MAX_FREEZE_TURNS = 10_000
# 31 years. The leader adds them to a moment in time, and one sum out of range would fail its look at all overdue runs.
MAX_FROZEN_SECONDS = 1e9
MAX_LABELS = 64
MAX_TEXT = 256
MAX_DETAILS = 16
MAX_DETAIL = 100
MAX_EPOCH = (1 << 63) - 1
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """What a new incarnation states of itself. `slots` 0: setting max_jobs_per_worker decides, at most `most_slots` (0 = no bound);
    `ready_slots` it has now. `previous` is an incarnation that it attests to be dead, "" for none.

    `reports` are those that earlier incarnations left; `reports_error` says why they could not be read. `secret_hash` is that of the
    secret of its state directory, None for none.
    """

    incarnation: str
    instance: str
    node_id: str
    boot_id: str
    pid: int
    grpc_host: str
    grpc_port: int
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    epoch_max: int = 0
    presented: Presented | None = None
    slots: int = 0
    ready_slots: int = 0
    most_slots: int = 0
    previous: str = ""
    reports: Sequence[Report] = ()
    reports_error: TobanError | None = None
    secret_hash: bytes | None = field(default=None, repr=False)
    # Of its certificate.
    group: str = DEFAULT_GROUP
    proves_log_key: bool = False
    isolation: str = ""
    isolation_details: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The new incarnation's number, key and lease. `max_jobs_per_worker` 0 = keep the slots that you have."""

    worker_id: int
    key: str
    lease_ms: int
    lease_margin_ms: int
    heartbeat_interval_seconds: float
    epoch: int
    proof: EpochProof
    max_jobs_per_worker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One heartbeat. `held` are the attempts that have not finished, `epoch_max` is the highest epoch that the executor knows.

    `stopped`: the process ends, and uses no grant any more. `witnessed`: it has died, and its witness proves the secret of `secret_hash`.
    """

    beat: executors.Beat
    epoch_max: int = 0
    presented: Presented | None = None
    held: Sequence[AttemptKey] = ()
    progress: Mapping[AttemptKey, Progress] = field(default_factory=dict)
    steps: Mapping[AttemptKey, tuple[StepResult, ...]] = field(default_factory=dict)
    freezes: Mapping[AttemptKey, freezes.FreezeNote] = field(default_factory=dict)
    stopped: bool = False
    witnessed: bool = False
    secret_hash: bytes | None = field(default=None, repr=False)
    # None: the executor does not name what it has not reported.
    named: Named | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The grant and pending orders, and what each answer says of the cluster."""

    answer: Answer
    leader: LeaderView
    coordinators: Sequence[str]
    log_archivers: Sequence[str]
    settings_version: int
    # The sub-leader of the executor's node, "" when there is none.
    subleader: str
    # Another copy of this incarnation has presented a later nonce.
    superseded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Addresses that every answer to a heartbeat has: coordinators, the sub-leader of a node ("" = none), and log-archivers."""

    coordinators: Callable[[], Sequence[str]]
    subleader: Callable[[str], str]
    log_archivers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDeps:
    """What sessions work with. `pool` is a small one of its own: reports and reads never make a grant wait."""

    pool: Pool
    leader: LeaderSource
    reports: ReportQueue
    mirror: MemberMirror
    # Take the progress of jobs, and the steps that they have started; must not wait and not fail.
    on_progress: Callable[[str, Mapping[AttemptKey, Progress]], None]
    on_steps: Callable[[str, Mapping[AttemptKey, tuple[StepResult, ...]]], None]
    neighbours: Neighbours
    settings: SettingsSource
    server_time: ServerClock
    clock: Clock
    ids: IdSource


class ExecutorSessions:
    """Any coordinator answers every executor."""

    def __init__(self, *, deps: SessionDeps) -> None:
        self._deps = deps
        self._grants = LeaseGrants(pool=deps.pool)
        self._claims = EpochClaims(pool=deps.pool, clock=deps.clock)
        self._throttle = LogThrottle()
        self._deaths = DeathClaims(pool=deps.pool, reports=deps.reports)
        self._groups = GroupAdmission(clock=deps.clock)

    async def register(self, intro: Introduction) -> Registered:
        """Inserts a new incarnation and gives it its key.

        Raises INVALID_ARGUMENT, ALREADY_EXISTS, EPOCH_UNPROVEN, UNAUTHENTICATED for an instance that lives with another secret, and
        PERMISSION_DENIED for what its group does not allow.
        """
        epoch_max = _valid_epoch(intro.epoch_max)
        settings = await self._deps.settings.get()
        max_jobs, slots = await self._slots(intro)
        new = _registration(intro, slots=slots)
        await self._deaths.check_instance(new)
        if intro.presented is not None or term_of(epoch_max) > self._deps.leader.view().epoch:
            await self._claims.check(_claim(intro, new))
        key = self._deps.ids.token_hex(KEY_BYTES)
        made = await executors.register(
            self._deps.pool, new, key_hash=hash_key(key), lease_ms=DEFAULT_LEASE_MS, admit=self._groups.admit
        )
        if made is None:
            raise TobanError(
                ErrorCode.ALREADY_EXISTS, f"incarnation {new.incarnation} is registered already; register a new one"
            )
        await self._deaths.inherit(
            new,
            intro.reports,
            intro.reports_error,
            heartbeat_seconds=settings["heartbeat_interval_seconds"],
        )
        _log.info("executor registered", worker_id=made.worker_id, node_id=new.node_id, incarnation=new.incarnation)
        return Registered(
            worker_id=made.worker_id,
            key=key,
            lease_ms=made.lease_ms,
            lease_margin_ms=int(HOLD_MARGIN * 1000),
            heartbeat_interval_seconds=settings["heartbeat_interval_seconds"],
            epoch=self._deps.leader.view().epoch,
            proof=EpochProof(
                cluster_id=made.cluster_id,
                epoch=made.leader_epoch,
                incarnation=new.incarnation,
                grant_seq=0,
                signed_at=made.granted_at,
            ),
            max_jobs_per_worker=max_jobs,
        )

    async def finish_orders(self, incarnation: str, results: Mapping[int, str]) -> None:
        """Stores the results of queued orders, by their id, before anything else of a heartbeat is read: the executor has carried them out."""
        if results:
            await queued_orders.finish(self._deps.pool, incarnation=incarnation, results=results)

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        """Grants, and loads what the executor has to know. The last heartbeat of a stopped process is only recorded.

        Raises INVALID_ARGUMENT for an epoch that cannot be, EPOCH_UNPROVEN for one that the executor cannot prove.
        """
        claimed = _valid_epoch(heartbeat.epoch_max)
        incarnation = heartbeat.beat.incarnation
        if heartbeat.stopped:
            # No grant, whatever it holds: none is used any more, and one would move the row away from the leader that closes it.
            if not heartbeat.held:
                await self._deaths.note_own(
                    incarnation,
                    nonce=heartbeat.beat.nonce,
                    witnessed=heartbeat.witnessed,
                    secret_hash=heartbeat.secret_hash,
                )
            return self._answer(Answer(grant=None))
        if heartbeat.freezes:
            # Before the row shows a fresh heartbeat: from then on the leader holds the timeouts of these runs against them.
            await freezes.note(self._deps.pool, incarnation, heartbeat.freezes)
        frozen = any(note.turns % 2 for note in heartbeat.freezes.values())
        answer = await self._grants.heartbeat(heartbeat.beat, heartbeat.held, heartbeat.named, frozen=frozen)
        await self._check_epoch(claimed, heartbeat.presented, answer)
        superseded = False
        if (grant := answer.grant) is not None and not grant.nonce_known:
            if await self._claims.adopt_nonce(heartbeat.presented, grant, heartbeat.beat.nonce):
                answer = await self._grants.heartbeat(heartbeat.beat, heartbeat.held, heartbeat.named, frozen=frozen)
            else:
                superseded = self._is_superseded(heartbeat.presented, grant)
        if answer.grant is not None:
            self._mirror(answer.grant, heartbeat)
            self._deps.on_progress(incarnation, heartbeat.progress)
            if heartbeat.steps:
                self._deps.on_steps(incarnation, heartbeat.steps)
        return self._answer(answer, superseded=superseded)

    def clock_skew(self, wall_clock: datetime | None) -> float | None:
        """An executor's wall clock minus PostgreSQL's, seconds, off by the time of the request; None when one of them is not known."""
        try:
            return None if wall_clock is None else (wall_clock - self._deps.server_time.now()).total_seconds()
        except TobanError:
            return None

    async def _check_epoch(self, claimed: int, presented: Presented | None, answer: Answer) -> None:
        """A claim above the leader row, or a signed grant above the executor's own, is looked at; all others cost nothing."""
        grant = answer.grant
        if grant is None:
            return
        proof = presented.proof if presented else None
        lost = proof is not None and proof.incarnation == grant.incarnation and proof.grant_seq > grant.grant_seq
        if lost or term_of(claimed) > grant.leader_epoch:
            claim = Claim(epoch=claimed, presented=presented, incarnation=grant.incarnation, node_id=grant.node_id)
            await self._claims.check(claim)

    def _is_superseded(self, presented: Presented | None, grant: executors.Grant) -> bool:
        """PostgreSQL has later grants than this caller has received: they went to a copy, which presented their nonces.

        Only a proof of this incarnation, and of this cluster, shows which one it has received.
        """
        proof = presented.proof if presented else None
        if proof is None or (proof.cluster_id, proof.incarnation) != (grant.cluster_id, grant.incarnation):
            return False
        if proof.grant_seq >= grant.grant_seq:
            return False
        if (suppressed := self._throttle.admit(grant.incarnation, self._deps.clock.monotonic())) is not None:
            _log.warning(
                "heartbeat refused: another copy of this executor has its lease; was its machine cloned or restored?",
                incarnation=grant.incarnation,
                node_id=grant.node_id,
                worker_id=grant.worker_id,
                not_logged=suppressed,
            )
        return True

    async def _slots(self, intro: Introduction) -> tuple[int, int]:
        """What the answer says of max_jobs_per_worker (0 = keep those that you have), and the slots of the new row."""
        if intro.slots:
            return 0, intro.slots
        wanted = await self._deps.settings.get_verified(MAX_JOBS)
        if wanted is None:
            # The default stands in for a value that is not known, and must not take slots from an executor.
            _log.error("setting cannot be read; executor keeps its slots", setting=MAX_JOBS)
            return 0, intro.ready_slots or int(SETTINGS[MAX_JOBS].default)
        given = min(int(wanted), intro.most_slots or MAX_SLOTS)
        if given < wanted:
            _log.warning(
                "executor gets fewer slots than the setting says", setting=MAX_JOBS, wanted=wanted, slots=given
            )
        return given, given

    def _answer(self, answer: Answer, *, superseded: bool = False) -> HeartbeatAnswer:
        return HeartbeatAnswer(
            answer=answer,
            superseded=superseded,
            leader=self._deps.leader.view(),
            coordinators=self._deps.neighbours.coordinators(),
            log_archivers=self._deps.neighbours.log_archivers,
            settings_version=self._deps.settings.known.version,
            subleader=self._deps.neighbours.subleader(answer.grant.node_id) if answer.grant else "",
        )

    def _mirror(self, grant: executors.Grant, heartbeat: Heartbeat) -> None:
        runs = sorted(key.run_id for key in heartbeat.held)
        fields = {
            "node_id": grant.node_id,
            "pid": str(grant.pid),
            "grpc_host": grant.grpc_host,
            "grpc_port": str(grant.grpc_port),
            "role": "worker",
            "last_heartbeat_ts": f"{self._deps.clock.wall().timestamp():.3f}",
            "load": f"{heartbeat.beat.load:.2f}",
            # Ids grow, so the smallest is the one that has run longest.
            "current_job_run_id": str(runs[0]) if runs else "",
            "current_job_run_ids": ",".join(map(str, runs)),
            "detached": "1" if grant.state is ExecutorState.DETACHED else "0",
        }
        self._deps.mirror.put(grant.worker_id, fields)


def _valid_epoch(value: int) -> int:
    if not 0 <= value <= MAX_EPOCH:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"epoch_max {value} is not a 63-bit epoch")
    return value


def _claim(intro: Introduction, new: executors.Registration) -> Claim:
    return Claim(
        epoch=intro.epoch_max,
        presented=intro.presented,
        incarnation=new.incarnation,
        node_id=new.node_id,
        instance=new.instance,
    )


def _registration(intro: Introduction, *, slots: int) -> executors.Registration:
    for name in ("instance", "node_id", "boot_id", "grpc_host"):
        if not 0 < len(getattr(intro, name)) <= MAX_TEXT:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name} must have 1 to {MAX_TEXT} characters")
    if any(not 0 < len(key) <= MAX_TEXT or len(value) > MAX_TEXT for key, value in intro.labels.items()):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"a label must have 1 to {MAX_TEXT} characters, and its value at most {MAX_TEXT}",
        )
    if not 0 < intro.grpc_port <= 65535 or not 0 < slots <= MAX_SLOTS or len(intro.labels) > MAX_LABELS:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "grpc_port, slots or the number of labels is out of range")
    details = intro.isolation_details
    if len(details) > MAX_DETAILS or any(not 0 < len(one) <= MAX_DETAIL or not one.isprintable() for one in details):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"isolation_details must be at most {MAX_DETAILS} texts of 1 to {MAX_DETAIL} printable characters",
        )
    return executors.Registration(
        incarnation=valid_incarnation(intro.incarnation),
        instance=intro.instance,
        node_id=intro.node_id,
        boot_id=intro.boot_id,
        pid=intro.pid,
        grpc_host=intro.grpc_host,
        grpc_port=intro.grpc_port,
        slots=slots,
        labels=intro.labels,
        version=intro.version[:MAX_TEXT],
        previous=valid_incarnation(intro.previous) if intro.previous else "",
        secret_hash=intro.secret_hash,
        group=intro.group,
        proves_log_key=intro.proves_log_key,
        # A class that this release does not know is no promise that it could rely on.
        isolation=ISOLATED if intro.isolation == ISOLATED else SHARED,
        isolation_details=list(details),
    )
