"""ExecutorGateway: register, heartbeat, report."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from toban_coordinator.ports.leader import LeaderSource, ServerClock
from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.ports.worker_registry import MemberMirror
from toban_coordinator.server.incarnation_keys import INCARNATION, IncarnationKeys, hash_key, valid_incarnation
from toban_coordinator.server.lease_grants import Answer, Granter
from toban_coordinator.server.open_orders import open_order
from toban_coordinator.server.settings_stream import SettingsStreams
from toban_coordinator.store import executors, queued_orders
from toban_domain.epoch import Epoch
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.lease import ExecutorState
from toban_domain.outcome import AttemptKey
from toban_domain.progress import Progress
from toban_domain.settings import SETTINGS
from toban_fencing.executor_lease import HOLD_MARGIN
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import ATTEMPT_STATE_FINISHED
from toban_proto.v1.coordinator_pb2_grpc import ExecutorGatewayServicer
from toban_runtime.clock import Clock
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_transport.convert import key_from_pb, key_to_pb, progress_from_text, timestamp_from_pb
from toban_transport.server import metadata

DEFAULT_LEASE_MS = int(1000 * SETTINGS["executor_lease_seconds"].default)
MAX_JOBS = "max_jobs_per_worker"
KEY_BYTES = 32
MAX_SLOTS = 10_000
# Less than an executor waits for the answer with its key.
INHERIT_SECONDS = 2.5
MAX_LABELS = 64
MAX_TEXT = 256
_MAX_EPOCH = (1 << 63) - 1
# Fail-overs and restores that executors may have seen and the leader row has not (a database restored from an old backup).
MAX_GENERATIONS_AHEAD = 64
_log = get_logger(__name__)
_refused_epochs = metrics.counter(
    "toban_epochs_refused_total", "Executor calls rejected because their epoch was too far above the leader's."
)
Context = Any


class Reports(Protocol):
    """Commits what an executor reports about its attempts."""

    async def report(self, request: pb.ReportRequest, incarnation: str) -> pb.ReportResponse:
        """One transaction for the whole request; answers after the commit."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """What every answer to a heartbeat tells about others: coordinators' and log-archivers' addresses."""

    coordinators: Callable[[], Sequence[str]]
    log_archivers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayDeps:
    """What the gateway answers from. `pool` is a small one of its own: reports and reads never make a grant wait."""

    pool: Pool
    leader: LeaderSource
    reports: Reports
    mirror: MemberMirror
    # Takes what jobs say of how far they are; must not wait and not fail.
    on_progress: Callable[[str, Mapping[AttemptKey, Progress]], None]
    neighbours: Neighbours
    settings: SettingsSource
    settings_streams: SettingsStreams
    server_time: ServerClock
    clock: Clock


class Gateway(ExecutorGatewayServicer):
    """Any coordinator answers every call: grants are conditional on the executor's row, not on leadership."""

    def __init__(self, *, deps: GatewayDeps, ids: IdSource) -> None:
        self._deps = deps
        self._ids = ids
        self._keys = IncarnationKeys(pool=deps.pool)
        self._granter = Granter(pool=deps.pool)

    async def Register(self, request: pb.RegisterRequest, _context: Context) -> pb.RegisterResponse:
        """Insert a new incarnation and give it its key."""
        settings = await self._deps.settings.get()
        max_jobs, slots = await self._slots(request)
        new = _registration(request, self._epoch(request.epoch_max), slots=slots)
        key = self._ids.token_hex(KEY_BYTES)
        made = await executors.register(self._deps.pool, new, key_hash=hash_key(key), lease_ms=DEFAULT_LEASE_MS)
        if made is None:
            raise TobanError(
                ErrorCode.ALREADY_EXISTS, f"incarnation {new.incarnation} is registered already; register a new one"
            )
        await self._inherit(request, new)
        _log.info("executor registered", worker_id=made.worker_id, node_id=new.node_id, incarnation=new.incarnation)
        return pb.RegisterResponse(
            worker_id=made.worker_id,
            incarnation_key=key,
            lease_ms=made.lease_ms,
            lease_margin_ms=int(HOLD_MARGIN * 1000),
            heartbeat_interval_seconds=settings["heartbeat_interval_seconds"],
            epoch=self._deps.leader.view().epoch,
            max_jobs_per_worker=max_jobs,
        )

    async def _inherit(self, request: pb.RegisterRequest, new: executors.Registration) -> None:
        """What earlier incarnations have reached is committed, then their death is attested.

        Where that fails their leases end by themselves, and the executor reports again: the row is there, so its key must get out.
        """
        try:
            async with asyncio.timeout(INHERIT_SECONDS):
                if request.reports:
                    reports = pb.ReportRequest(incarnation=new.incarnation, reports=request.reports)
                    await self._deps.reports.report(reports, new.incarnation)
                await executors.attest(self._deps.pool, new)
        except (TobanError, TimeoutError) as error:
            _log.warning(
                "no death is attested",
                incarnation=new.incarnation,
                error=str(error) or "no answer in time",
                reports=len(request.reports),
            )

    async def _slots(self, request: pb.RegisterRequest) -> tuple[int, int]:
        """What the answer says of max_jobs_per_worker (0 = keep those that you have), and the slots of the new row."""
        if request.slots:
            return 0, request.slots
        wanted = await self._deps.settings.sure(MAX_JOBS)
        if wanted is None:
            # The default stands in for a value that nobody knows, and must not take slots from anybody.
            _log.error("an executor keeps its slots: the setting cannot be read", setting=MAX_JOBS)
            return 0, request.ready_slots or int(SETTINGS[MAX_JOBS].default)
        given = min(int(wanted), request.most_slots or MAX_SLOTS)
        if given < wanted:
            _log.warning("an executor cannot have that many slots", setting=MAX_JOBS, wanted=wanted, slots=given)
        return given, given

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        """Grant, and tell what the executor has to know; the last word of one that has stopped is only noted."""
        skew = self._skew(request)
        incarnation = await self._keys.verified(metadata(context), request.incarnation)
        if request.order_outcomes:
            done = {item.order_id: item.result for item in request.order_outcomes}
            await queued_orders.finish(self._deps.pool, incarnation=incarnation, results=done)
        held = [key_from_pb(item.key) for item in request.held if item.state != ATTEMPT_STATE_FINISHED]
        if request.stopped:
            # No grant, whatever it holds: none is used any more, and one would move the row away from the leader that closes it.
            if not held:
                await executors.attest_stopped(self._deps.pool, incarnation)
            return self._response(Answer(grant=None))
        beat = _beat(request, incarnation, self._epoch(request.epoch_max), skew)
        answer = await self._granter.heartbeat(beat, held)
        self._mirror(request, answer, held)
        if answer.grant is not None:
            self._deps.on_progress(incarnation, _progress(request))
        return self._response(answer)

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        """Commit starts and outcomes."""
        incarnation = await self._keys.verified(metadata(context), request.incarnation)
        return await self._deps.reports.report(request, incarnation)

    async def WatchSettings(
        self, _request: pb.WatchSettingsRequest, context: Context
    ) -> AsyncIterator[pb.WatchSettingsResponse]:
        """The settings now and on each change."""
        said = metadata(context)
        await self._keys.verified(said, said.get(INCARNATION, ""))
        async for message in self._deps.settings_streams.watch():
            yield message

    def _skew(self, request: pb.HeartbeatRequest) -> float | None:
        """The executor's wall clock minus PostgreSQL's, seconds, off by the way of the request; None when one of them is not known."""
        wall = _time_of(request.wall_clock)
        try:
            return None if wall is None else (wall - self._deps.server_time.now()).total_seconds()
        except TobanError:
            return None

    def _epoch(self, value: int) -> int:
        """A believable epoch. What executors know pushes the leaders' epochs up, so one liar could use them all up."""
        if not 0 <= value <= _MAX_EPOCH:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"epoch_max {value} is not a 63-bit epoch")
        known = Epoch.unpack(self._deps.leader.view().epoch).generation
        generation = Epoch.unpack(value).generation
        if generation > known + MAX_GENERATIONS_AHEAD:
            _refused_epochs.inc()
            _log.error("an executor names an epoch that cannot be", epoch_max=str(value), leader_generation=known)
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT,
                f"epoch_max {value} is of generation {generation}, more than {MAX_GENERATIONS_AHEAD} above the leader's {known}",
            )
        return value

    def _response(self, answer: Answer) -> pb.HeartbeatResponse:
        grant, leader = answer.grant, self._deps.leader.view()
        return pb.HeartbeatResponse(
            granted=grant is not None and grant.granted,
            grant_seq=grant.grant_seq if grant else 0,
            epoch=leader.epoch,
            state=(grant.state if grant else ExecutorState.OFF).value,
            detach_mode=grant.detach_mode if grant else "",
            leader_address=leader.address,
            coordinators=self._deps.neighbours.coordinators(),
            orders=[open_order(order) for order in answer.news.orders],
            smallest_live_token=answer.news.smallest_live_token,
            not_held=[key_to_pb(key) for key in answer.news.not_held],
            log_archivers=self._deps.neighbours.log_archivers,
            settings_version=self._deps.settings.known.version,
        )

    def _mirror(self, request: pb.HeartbeatRequest, answer: Answer, held: Sequence[AttemptKey]) -> None:
        grant = answer.grant
        if grant is None:
            return
        runs = sorted(key.run_id for key in held)
        fields = {
            "node_id": grant.node_id,
            "pid": str(grant.pid),
            "grpc_host": grant.grpc_host,
            "grpc_port": str(grant.grpc_port),
            "role": "worker",
            "last_heartbeat_ts": f"{self._deps.clock.wall().timestamp():.3f}",
            "load": f"{request.load:.2f}",
            # Ids grow, so the smallest is the one that has run longest.
            "current_job_run_id": str(runs[0]) if runs else "",
            "current_job_run_ids": ",".join(map(str, runs)),
            "detached": "1" if grant.state is ExecutorState.DETACHED else "0",
        }
        self._deps.mirror.put(grant.worker_id, fields)


def _registration(request: pb.RegisterRequest, epoch_max: int, *, slots: int) -> executors.Registration:
    for name in ("instance", "node_id", "boot_id", "grpc_host"):
        if not 0 < len(getattr(request, name)) <= MAX_TEXT:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{name} must have 1 to {MAX_TEXT} characters")
    if not 0 < request.grpc_port <= 65535 or not 0 < slots <= MAX_SLOTS or len(request.labels) > MAX_LABELS:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "grpc_port, slots or the number of labels is out of range")
    previous = request.previous_incarnation if request.previous_verified_empty else ""
    return executors.Registration(
        incarnation=valid_incarnation(request.incarnation),
        instance=request.instance,
        node_id=request.node_id,
        boot_id=request.boot_id,
        pid=request.pid,
        grpc_host=request.grpc_host,
        grpc_port=request.grpc_port,
        slots=slots,
        labels=dict(request.labels),
        epoch_max=epoch_max,
        version=request.version[:MAX_TEXT],
        previous=valid_incarnation(previous) if previous else "",
    )


def _progress(request: pb.HeartbeatRequest) -> dict[AttemptKey, Progress]:
    said = ((item.key, progress_from_text(item.progress_json)) for item in request.held if item.progress_json)
    return {key_from_pb(key): progress for key, progress in said if progress is not None}


def _beat(request: pb.HeartbeatRequest, incarnation: str, epoch_max: int, skew: float | None) -> executors.Beat:
    return executors.Beat(
        incarnation=incarnation,
        echo=max(0, request.echo),
        epoch_max=epoch_max,
        free_slots=max(0, min(request.free_slots, MAX_SLOTS)),
        load=request.load if math.isfinite(request.load) else 0.0,
        draining=request.draining,
        clock_skew_seconds=skew,
        disk_free_bytes=min(request.disk_free_bytes, _MAX_EPOCH) if request.disk_free_bytes > 0 else None,
        certificate_not_after=_time_of(request.certificate_not_after),
    )


def _time_of(message: Any) -> datetime | None:
    """The time of a Timestamp; None also for what is none: no grant is lost for what only `toban doctor` looks at."""
    try:
        return timestamp_from_pb(message)
    except TobanError:
        return None
