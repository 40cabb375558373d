"""Client channels: mTLS with our certificate, the server's identity pinned by the DNS name of its service."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import grpc.aio

from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import Clock, SystemClock
from toban_transport.authz import SERVICES, service_of
from toban_transport.identity import dns_name
from toban_transport.tls import TlsFiles, Triple

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
DRAIN_SECONDS = 730.0
"""How long calls on a replaced channel may go on: longer than servers let any connection live (MAX_CONNECTION_AGE_SECONDS,
of which gRPC takes up to a tenth more, and the grace), so that no stream ends sooner by it than it would have ended anyway.
"""
IDLE_SECONDS = 600.0
"""A channel that was not requested for this long is closed: executors get a new port with each start."""


S = TypeVar("S")


@dataclass(slots=True)
class _Held:
    """A channel, the files that it was made with, and when it was last asked for."""

    triple: Triple
    channel: grpc.aio.Channel
    used_at: float


class ChannelPool:
    """One channel an (address, service), made at the first request, remade when our certificate files change, closed when unused.

    Ask for a channel or a stub with each call: one that is kept for longer than IDLE_SECONDS may be closed.
    """

    def __init__(self, *, tls: TlsFiles, trust_domain: str, clock: Clock | None = None) -> None:
        self._tls = tls
        self._trust_domain = trust_domain
        self._clock = clock or SystemClock()
        # The one that was asked for last is at the end.
        self._channels: dict[tuple[str, str], _Held] = {}
        self._stubs: dict[tuple[str, str, Callable[..., Any]], tuple[grpc.aio.Channel, Any]] = {}
        self._draining: set[asyncio.Task[None]] = set()

    def get(self, address: str, service: str) -> grpc.aio.Channel:
        """The channel to `service` at `address` (host:port). Connects lazily; calls fail unless the server proves to be that service.

        `executor/<group>` is an executor of this group and of no other one.
        """
        triple = self._tls.current()
        now = self._clock.monotonic()
        held = self._channels.pop((address, service), None)
        if held is not None and held.triple is triple:
            held.used_at = now
        else:
            if held is not None:
                self._drain(held.channel)
            options = _options(service, self._trust_domain)
            held = _Held(triple, grpc.aio.secure_channel(address, _credentials(triple), options=options), now)
        self._channels[(address, service)] = held
        self._forget_unused(now)
        return held.channel

    def stub(self, make: Callable[[grpc.aio.Channel], S], address: str, service: str) -> S:
        """The stub that `make` (a generated class) gives for `get(address, service)`; remade with each new channel only."""
        channel = self.get(address, service)
        held = self._stubs.get((address, service, make))
        if held is None or held[0] is not channel:
            held = self._stubs[(address, service, make)] = (channel, make(channel))
        stub: S = held[1]
        return stub

    async def close(self) -> None:
        """End all channels at once; calls under way are cancelled."""
        channels = [held.channel for held in self._channels.values()]
        self._channels.clear()
        self._stubs.clear()
        for task in tuple(self._draining):
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        await asyncio.gather(*(channel.close(None) for channel in channels))

    def _forget_unused(self, now: float) -> None:
        while (first := next(iter(self._channels))) and now - self._channels[first].used_at >= IDLE_SECONDS:
            self._drain(self._channels.pop(first).channel)
            for key in [key for key in self._stubs if key[:2] == first]:
                del self._stubs[key]

    def _drain(self, channel: grpc.aio.Channel) -> None:
        task = asyncio.ensure_future(self._retire(channel))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    async def _retire(self, channel: grpc.aio.Channel) -> None:
        # Not `close(grace)`: it would refuse a call of a caller that got the channel a moment ago.
        try:
            await self._clock.sleep(DRAIN_SECONDS)
        finally:
            await channel.close(None)


def open_sync_channel(address: str, service: str, tls: TlsFiles, trust_domain: str) -> grpc.Channel:
    """A blocking channel to `service` at `address`, for the command line; the caller closes it."""
    return grpc.secure_channel(address, _credentials(tls.current()), options=_options(service, trust_domain))


def _credentials(triple: Triple) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=triple.ca_pem,
        private_key=triple.key_pem,
        certificate_chain=triple.certificate_pem,
    )


def _options(service: str, trust_domain: str) -> list[tuple[str, Any]]:
    if service_of(service) not in SERVICES:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{service!r} is not a service; one of {sorted(SERVICES)}")
    return [
        ("grpc.ssl_target_name_override", dns_name(service, trust_domain)),
        # An address is exactly what the cluster advertised: no proxy of the environment in between.
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        # The library's own back-off grows to two minutes: longer than any fail-over here may take.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 500),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 3_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]
