"""A fake of the coordinator's ExecutorGateway without a database, for tests of the executor."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import Settings
from toban_proto.v1 import coordinator_pb2
from toban_proto.v1.coordinator_pb2_grpc import ExecutorGatewayServicer
from toban_transport.server import metadata

FIRST_NONCE = 1000


class FixedSettings:
    """The settings reader of a coordinator; `set` notifies all waiters. Settings in `unsure` cannot be read reliably."""

    def __init__(self, **values: float) -> None:
        self.unsure: set[str] = set()
        self._known = Settings(values, version=len(values))
        self._changed = asyncio.Event()

    @property
    def known(self) -> Settings:
        """The current settings."""
        return self._known

    def set(self, **values: float) -> None:
        """Changes settings and notifies waiters."""
        self._known = Settings({**self._known.values, **values}, version=self._known.version + len(values))
        self._changed.set()
        self._changed = asyncio.Event()

    async def get(self) -> Settings:
        """The current settings."""
        return self._known

    async def get_verified(self, name: str) -> float | None:
        """The current value; None while it is unverified."""
        return None if name in self.unsure else self._known[name]

    async def wait_other_than(self, seen: Settings | None) -> Settings:
        """Waits until the settings differ from `seen`."""
        while self._known == seen:
            await self._changed.wait()
        return self._known


# Generation 1, counter 1.
EPOCH = (1 << 51) | (1 << 27)
MARGIN_MS = 300


class FakeCoordinator(ExecutorGatewayServicer):
    """Grants leases and collects reports; its attributes control the responses."""

    def __init__(self, *, lease_ms: int = 10_000) -> None:
        self.lease_ms = lease_ms
        self.registered: list[Any] = []
        self.beats: list[Any] = []
        # The last heartbeats of witnesses; with each, how many reports had come before.
        self.witnessed: list[tuple[Any, int]] = []
        self.reports: list[Any] = []
        self.outcomes: dict[tuple[int, int], Any] = {}
        self.granting = True
        # Questions about continuation, whether they are confirmed, and the attempts that may not continue, each with its reason.
        self.questions: list[Any] = []
        self.confirming = True
        self.refused: dict[tuple[int, int], str] = {}
        # Heartbeats get no answer, questions about continuation do.
        self.deaf = False
        # Answer heartbeats as if another copy of the executor had its lease.
        self.superseded = False
        self.silent = False
        self.state = "on"
        self.detach_mode = ""
        self.max_jobs = 0
        self.settings = FixedSettings(heartbeat_interval_seconds=0.2)
        # Number of settings streams opened so far.
        self.watched = 0
        self.epoch = EPOCH
        self.open_orders: list[Any] = []
        self.not_held: list[Any] = []
        self.smallest_live = 0
        self.archivers: list[str] = []
        self.address = ""
        # Refuse reports with this message.
        self.refusing = ""
        # Checkpoints that were stored, by attempt; none is while `storing` is False.
        self.checkpoints: dict[tuple[int, int], list[str]] = {}
        self.storing = True
        self._grant_seq = 0

    async def Register(self, request: Any, context: Any) -> Any:
        """Registers a new incarnation; its state is on."""
        await self._maybe_silent()
        self.registered.append(request)
        self.state, self.detach_mode = "on", ""
        return coordinator_pb2.RegisterResponse(
            worker_id=len(self.registered),
            incarnation_key=f"key-{request.incarnation}",
            lease_ms=self.lease_ms,
            lease_margin_ms=MARGIN_MS,
            heartbeat_interval_seconds=0.1,
            epoch=self.epoch,
            max_jobs_per_worker=0 if request.slots else self.max_jobs,
        )

    async def Heartbeat(self, request: Any, context: Any) -> Any:
        """Grants unless the echo lags or the test disabled granting."""
        self._check(request, context)
        await self._maybe_silent()
        if request.witnessed:
            self.witnessed.append((request, len(self.reports)))
            return coordinator_pb2.HeartbeatResponse(state="off", log_archivers=self.archivers)
        if self.deaf:
            raise TobanError(ErrorCode.UNAVAILABLE, "deaf")
        self.beats.append(request)
        granted = (
            self.granting
            and not self.superseded
            and self._grant_seq - request.echo <= 3
            and self.state in ("on", "draining", "detached")
        )
        self._grant_seq += granted
        orders, self.open_orders = self.open_orders, []
        return coordinator_pb2.HeartbeatResponse(
            granted=granted,
            grant_seq=self._grant_seq,
            epoch=self.epoch,
            state=self.state,
            detach_mode=self.detach_mode,
            settings_version=self.settings.known.version,
            leader_address=self.address,
            coordinators=[self.address],
            orders=orders,
            not_held=self.not_held,
            smallest_live_token=self.smallest_live,
            log_archivers=self.archivers,
            superseded=self.superseded,
            nonce=FIRST_NONCE + self._grant_seq if granted else 0,
        )

    async def ConfirmContinuation(self, request: Any, context: Any) -> Any:
        """Confirms a question that presents the nonce of an earlier grant, unless the test says otherwise."""
        self._check(request, context)
        await self._maybe_silent()
        self.questions.append(request)
        known = 0 < request.nonce - FIRST_NONCE <= self._grant_seq
        confirmed = known and self.confirming and self.granting and not self.superseded
        self._grant_seq += confirmed
        return coordinator_pb2.ConfirmContinuationResponse(
            confirmed=confirmed,
            grant_seq=self._grant_seq,
            reason="" if confirmed else "as the test says" if known else "its nonce is not known",
            state=self.state,
            nonce=FIRST_NONCE + self._grant_seq if confirmed else 0,
            refused=[
                coordinator_pb2.RefusedContinuation(key=key, reason=self.refused[(key.run_id, key.token)])
                for key in request.keys
                if (key.run_id, key.token) in self.refused
            ],
        )

    async def WatchSettings(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Sends the test's settings, immediately and on each change."""
        assert metadata(context)["toban-incarnation"]
        self.watched += 1
        seen = None
        while True:
            seen = await self.settings.wait_other_than(seen)
            values = {name: json.dumps(value) for name, value in seen.values.items()}
            yield coordinator_pb2.WatchSettingsResponse(version=seen.version, values_json=values)

    async def Report(self, request: Any, context: Any) -> Any:
        """Accepts every report, or refuses all."""
        self._check(request, context)
        await self._maybe_silent()
        self.reports += request.reports
        if request.checkpoints and not self.storing:
            raise TobanError(ErrorCode.UNAVAILABLE, "as the test says")
        for one in request.checkpoints:
            self.checkpoints.setdefault((one.key.run_id, one.key.token), []).append(one.value_json)
        for report in request.reports:
            if report.HasField("outcome"):
                self.outcomes[(report.key.run_id, report.key.token)] = report.outcome
        return coordinator_pb2.ReportResponse(
            results=[
                coordinator_pb2.ReportResult(
                    key=report.key,
                    seq=report.seq,
                    result="refused" if self.refusing else "accepted",
                    message=self.refusing,
                )
                for report in request.reports
            ],
            checkpoints=[
                coordinator_pb2.CheckpointResult(key=one.key, seq=one.seq, stored=True) for one in request.checkpoints
            ],
        )

    def _check(self, request: Any, context: Any) -> None:
        sent = metadata(context)
        if not self.registered or request.incarnation != self.registered[-1].incarnation:
            raise TobanError(ErrorCode.INCARNATION_UNKNOWN, "no such incarnation")
        assert sent["toban-incarnation"] == request.incarnation
        assert sent["toban-incarnation-key"] == f"key-{request.incarnation}"

    async def _maybe_silent(self) -> None:
        if self.silent:
            raise TobanError(ErrorCode.UNAVAILABLE, "silent")
