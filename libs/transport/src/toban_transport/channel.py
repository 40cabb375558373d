"""Client channels: mTLS with our certificate, the server's identity pinned by the DNS name of its service."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from toban_domain.errors import ErrorCode, TobanError
from toban_transport.authz import SERVICES
from toban_transport.identity import dns_name
from toban_transport.tls import TlsFiles, Triple

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
DRAIN_SECONDS = 330.0
"""How long calls on a channel with an old certificate may go on: longer than the longest stream, so that none breaks by a change of files."""


S = TypeVar("S")


class ChannelPool:
    """One channel an (address, service), made when first asked for and made anew when our certificate files change."""

    def __init__(self, *, tls: TlsFiles, trust_domain: str) -> None:
        self._tls = tls
        self._trust_domain = trust_domain
        self._channels: dict[tuple[str, str], tuple[Triple, grpc.aio.Channel]] = {}
        self._stubs: dict[tuple[str, str, Callable[..., Any]], tuple[grpc.aio.Channel, Any]] = {}
        self._draining: set[asyncio.Task[None]] = set()

    def get(self, address: str, service: str) -> grpc.aio.Channel:
        """The channel to `service` at `address` (host:port). Connects lazily; calls fail unless the server proves to be that service."""
        triple = self._tls.current()
        held = self._channels.get((address, service))
        if held is not None and held[0] is triple:
            return held[1]
        channel = grpc.aio.secure_channel(address, _credentials(triple), options=_options(service, self._trust_domain))
        self._channels[(address, service)] = (triple, channel)
        if held is not None:
            self._drain(held[1])
        return channel

    def stub(self, make: Callable[[grpc.aio.Channel], S], address: str, service: str) -> S:
        """The stub that `make` (a generated class) gives for `get(address, service)`; made anew with each new channel only."""
        channel = self.get(address, service)
        held = self._stubs.get((address, service, make))
        if held is None or held[0] is not channel:
            held = self._stubs[(address, service, make)] = (channel, make(channel))
        stub: S = held[1]
        return stub

    async def close(self) -> None:
        """End all channels at once; calls under way are cancelled."""
        channels = [channel for _, channel in self._channels.values()]
        self._channels.clear()
        self._stubs.clear()
        for task in tuple(self._draining):
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        await asyncio.gather(*(channel.close(None) for channel in channels))

    def _drain(self, channel: grpc.aio.Channel) -> None:
        task = asyncio.ensure_future(_retire(channel))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)


def open_sync_channel(address: str, service: str, tls: TlsFiles, trust_domain: str) -> grpc.Channel:
    """A blocking channel to `service` at `address`, for the command line; the caller closes it."""
    return grpc.secure_channel(address, _credentials(tls.current()), options=_options(service, trust_domain))


async def _retire(channel: grpc.aio.Channel) -> None:
    # Not `close(grace)`: it refuses the call of somebody who was given the channel a moment ago.
    try:
        await asyncio.sleep(DRAIN_SECONDS)
    finally:
        await channel.close(None)


def _credentials(triple: Triple) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=triple.ca_pem,
        private_key=triple.key_pem,
        certificate_chain=triple.certificate_pem,
    )


def _options(service: str, trust_domain: str) -> list[tuple[str, Any]]:
    if service not in SERVICES:
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
