"""The log-archiver's calls to coordinators (ArchiveGateway)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import date
from typing import Any

from toban_domain.outcome import AttemptKey
from toban_domain.settings import Settings
from toban_log_archiver.ports.archive_gateway import Ended
from toban_observability import tracing
from toban_proto.v1 import common_pb2, coordinator_pb2
from toban_proto.v1.coordinator_pb2_grpc import ArchiveGatewayStub
from toban_runtime.clock import Clock
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary
from toban_transport.replicas import Replicas

CALL_SECONDS = 10.0
STREAM_SECONDS = 3600.0


class CoordinatorClient:
    """`addresses` are the configured coordinators (host:port); without one every call raises UNAVAILABLE."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str], clock: Clock) -> None:
        self._replicas = Replicas(
            channels=channels,
            stub=ArchiveGatewayStub,
            service="coordinator",
            addresses=addresses,
            clock=clock,
            unknown="no coordinator is known: set SCHEDULER_COORDINATORS",
        )

    async def ended(self, log_day: date, keys: Sequence[AttemptKey], *, off_seconds: float) -> list[Ended]:
        """Those of `keys` that have ended."""
        request = coordinator_pb2.ListSealedRequest(
            log_day=log_day.isoformat(),
            keys=[common_pb2.AttemptKey(run_id=key.run_id, token=key.token) for key in keys],
            off_seconds=off_seconds,
        )
        answer = await self._replicas.call(lambda stub: unary(stub.ListSealed, request, timeout=CALL_SECONDS))
        return [
            Ended(AttemptKey(one.key.run_id, one.key.token), one.last_seq if one.complete else None)
            for one in answer.attempts
        ]

    async def settings_now(self) -> Settings:
        """The first answer of any coordinator."""
        return await self._replicas.call(_first_settings)

    async def watch_settings(self, known_version: int) -> AsyncIterator[Settings]:
        """The settings now and on each change."""
        async for settings in _settings(self._replicas.next_for_stream(), known_version, STREAM_SECONDS):
            yield settings


async def _first_settings(stub: Any) -> Settings | None:
    """None when the coordinator ends the stream at once: it is stopping."""
    with tracing.outside():
        async with aclosing(_settings(stub, 0, CALL_SECONDS)) as answers:
            return await anext(answers, None)


async def _settings(stub: Any, known_version: int, seconds: float) -> AsyncGenerator[Settings, None]:
    request = coordinator_pb2.WatchSettingsRequest(known_version=known_version)
    async for message in stream(stub.WatchSettings, request, timeout=seconds):
        values = {name: _json(text) for name, text in message.values_json.items()}
        yield Settings.tolerant(values, version=message.version)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
