"""A coordinator and a log-archiver for clients: real servers over mTLS, with servicers of the tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toban_runtime.clock import SystemClock
from toban_transport.server import GrpcServer, build_server
from toban_transport.tls import TlsFiles

Services = Sequence[tuple[Any, Any]]
"""Each a function `add_..._to_server` and its servicer."""
SECONDS = 30.0


class Everybody:
    """A coordinator's check of people: what they may is the matter of its own tests."""

    async def admit(self, method: str, **_: Any) -> None:
        """Allows every call."""


class ServedCluster:
    """One coordinator and one log-archiver in a thread with an event loop."""

    def __init__(self, tls: Path, *, coordinator: Services, log_archiver: Services, people: Any = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.stopped = False
        """A server was stopped once: another test needs another cluster, since clients of this one wait before they connect again."""
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._tls = tls
        self._people = people or Everybody()
        self._services = {"coordinator": coordinator, "log-archiver": log_archiver}
        self._ports = dict.fromkeys(self._services, 0)
        self._servers: dict[str, GrpcServer] = {}
        self.do(self._start())
        self.coordinator, self.archiver = (f"127.0.0.1:{port}" for port in self._ports.values())

    def do(self, work: Any) -> Any:
        """The result of a coroutine in the thread of the servers."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS)

    def stop_coordinator(self) -> None:
        """Nothing listens at its address any more."""
        self._stop_servers("coordinator")

    def stop_archiver(self) -> None:
        """Nothing listens at its address any more."""
        self._stop_servers("log-archiver")

    def go_away(self) -> None:
        """No process listens at the addresses any more."""
        self._stop_servers(*self._services)

    def come_back(self) -> None:
        """As before, at the same addresses."""
        self.do(self._start())

    def close(self) -> None:
        """Ends the servers and the thread."""
        self.go_away()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _start(self) -> None:
        """At the ports of before."""
        for name, services in self._services.items():
            server = build_server(
                tls=TlsFiles(self._tls / name),
                trust_domain="toban.internal",
                clock=SystemClock(),
                people=self._people if name == "coordinator" else None,
            )
            for adder, servicer in services:
                server.add(adder, servicer)
            self._ports[name] = await server.start("127.0.0.1", self._ports[name])
            await server.set_serving(True)
            self._servers[name] = server

    def _stop_servers(self, *names: str) -> None:
        async def stop() -> None:
            for name in names:
                await self._servers[name].stop(0)

        self.stopped = True
        self.do(stop())
