"""Calls to any coordinator: the one that answered last first, the next one at once when it does not."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import date

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.settings import Settings
from toban_log_archiver.ports.archive_gateway import Ended
from toban_observability import tracing
from toban_proto.v1 import common_pb2, coordinator_pb2
from toban_proto.v1.coordinator_pb2_grpc import ArchiveGatewayStub
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import stream, unary

CALL_SECONDS = 10.0
STREAM_SECONDS = 3600.0


class CoordinatorClient:
    """`addresses` are the configured coordinators (host:port); without one every call raises UNAVAILABLE."""

    def __init__(self, *, channels: ChannelPool, addresses: Sequence[str]) -> None:
        self._channels = channels
        self._order = list(addresses)
        self._streams = 0

    async def ended(self, log_day: date, keys: Sequence[AttemptKey], *, off_seconds: float) -> list[Ended]:
        """Those of `keys` that have ended."""
        request = coordinator_pb2.ListSealedRequest(
            log_day=log_day.isoformat(),
            keys=[common_pb2.AttemptKey(run_id=key.run_id, token=key.token) for key in keys],
            off_seconds=off_seconds,
        )
        answer = await self._any(request)
        return [
            Ended(AttemptKey(one.key.run_id, one.key.token), one.last_seq if one.complete else None)
            for one in answer.attempts
        ]

    async def settings_now(self) -> Settings:
        """The first answer of any coordinator."""
        failure = _nobody()
        for address in tuple(self._order):
            try:
                with tracing.outside():
                    async with aclosing(self._settings(address, 0, CALL_SECONDS)) as answers:
                        async for settings in answers:
                            return settings
                failure = TobanError(ErrorCode.UNAVAILABLE, f"coordinator {address} stops: ask another one")
            except TobanError as error:
                failure = error
        raise failure

    async def watch_settings(self, known_version: int) -> AsyncIterator[Settings]:
        """The settings now and on each change."""
        if not self._order:
            raise _nobody()
        address = self._order[self._streams % len(self._order)]
        self._streams += 1
        async for settings in self._settings(address, known_version, STREAM_SECONDS):
            yield settings

    async def _settings(self, address: str, known_version: int, seconds: float) -> AsyncGenerator[Settings, None]:
        method = self._channels.stub(ArchiveGatewayStub, address, "coordinator").WatchSettings
        request = coordinator_pb2.WatchSettingsRequest(known_version=known_version)
        async for message in stream(method, request, timeout=seconds):
            values = {name: _json(text) for name, text in message.values_json.items()}
            yield Settings.tolerant(values, version=message.version)

    async def _any(self, request: coordinator_pb2.ListSealedRequest) -> coordinator_pb2.ListSealedResponse:
        failure = _nobody()
        for address in tuple(self._order):
            try:
                stub = self._channels.stub(ArchiveGatewayStub, address, "coordinator")
                answer = await unary(stub.ListSealed, request, timeout=CALL_SECONDS)
            except TobanError as error:
                failure = error
                continue
            self._order.remove(address)
            self._order.insert(0, address)
            return answer
        raise failure


def _nobody() -> TobanError:
    return TobanError(ErrorCode.UNAVAILABLE, "no coordinator is known: set SCHEDULER_COORDINATORS")


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
