"""The network between an executor and the rest, as proxies that a test cuts and heals; a `leased_executor` (tests/faults) uses them."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toban_testing.proxy import FaultProxy


class Links:
    """A proxy for each address that the executor `node` calls, and one for its own, which coordinators call."""

    def __init__(self, *, file: Path, node: str, own: str, others: Sequence[str]) -> None:
        self._file = file
        self._node = node
        self._own = own
        self._others = list(others)
        self._proxies: dict[str, FaultProxy] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links")

    def __enter__(self) -> Self:
        self._thread.start()
        for address in (self._own, *self._others):
            self._proxies[address] = self._run(self._open, address)
        uses: dict[str, Any] = {address: self._proxies[address].address for address in self._others}
        self._file.write_text(json.dumps({self._node: uses | {"self": self._proxies[self._own].port}}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for proxy in self._proxies.values():
            self._run(proxy.__aexit__, None, None, None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def partition(self, *addresses: str) -> None:
        """From now on nothing gets through, in either direction; connections stay open. Without addresses: to and from everything."""
        self._each(FaultProxy.freeze, addresses)

    def heal(self) -> None:
        """What was held back arrives, and everything gets through again."""
        self._each(FaultProxy.heal, ())

    def _each(self, what: Callable[[FaultProxy], None], addresses: Sequence[str]) -> None:
        async def all_of_them() -> None:
            for address in addresses or self._proxies:
                what(self._proxies[address])

        self._run(all_of_them)

    async def _open(self, address: str) -> FaultProxy:
        host, _, port = address.rpartition(":")
        return await FaultProxy(host=host, port=int(port)).__aenter__()

    def _run(self, what: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        async def call() -> Any:
            return await what(*arguments)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)
