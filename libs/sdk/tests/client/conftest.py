"""A site that a test scripts, and both clients behind one interface."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from toban.client import AsyncClient, Client, Target, flow
from toban_testing.scripted_site import ScriptedSite, scripted_site

TOKEN = "toban_pat_test"


@pytest.fixture
def site() -> Iterator[ScriptedSite]:
    with scripted_site() as running:
        yield running


class Both:
    """A client of either kind: `do(lambda client: client.runs.get(7))`; iterators become lists."""

    def __init__(self, kind: str, target: Target, retry_seconds: float) -> None:
        self._runner = asyncio.Runner() if kind == "async" else None
        self._client: Any = (
            AsyncClient(target, retry_seconds=retry_seconds)
            if self._runner
            else Client(target, retry_seconds=retry_seconds)
        )

    def do(self, use: Callable[[Any], Any]) -> Any:
        if self._runner is None:
            found = use(self._client)
            return list(found) if isinstance(found, Iterator) else found

        async def call() -> Any:
            found = use(self._client)
            return [one async for one in found] if isinstance(found, AsyncIterator) else await found

        return self._runner.run(call())

    def close(self) -> None:
        if self._runner is None:
            self._client.close()
            return
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Both]]:
    """Makes a client of each kind."""
    made: list[Both] = []

    def make(url: str, retry_seconds: float = 30.0, ca_file: str = "") -> Both:
        made.append(Both(request.param, Target(url=url, token=TOKEN, ca_file=ca_file), retry_seconds))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def client(connect: Callable[..., Both], site: ScriptedSite) -> Both:
    """A client of the scripted site."""
    return connect(site.url)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses without a wish of the site take milliseconds."""
    monkeypatch.setattr(flow, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr("toban.client.streams._SHORT_PAUSE", 0.001)
    monkeypatch.setattr("random.uniform", lambda low, _: low)
