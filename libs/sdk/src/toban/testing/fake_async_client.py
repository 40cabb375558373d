"""`FakeAsyncClient`: a client for event loops whose site is in memory."""

from __future__ import annotations

from typing import Any, NoReturn

from toban.client.async_client import AsyncClient
from toban.client.async_transport import AsyncTransport
from toban.client.flow import Now, Pause, Reply, Request
from toban.client.models import EndState
from toban.testing.fake_site import TARGET, FakeSite


class FakeAsyncClient(AsyncClient):
    """As `FakeClient`, with the methods of an AsyncClient; `end_runs` is a plain call."""

    def __init__(self, *jobs: str) -> None:
        self._site = FakeSite(jobs)
        super().__init__(TARGET)

    def end_runs(self, job: str, state: EndState = "SUCCEEDED", *, result: Any = None, error_summary: str = "") -> None:
        """Ends the runs of a job that have not ended, and each one that is started later, at once. Raises ValueError for an unknown job."""
        self._site.end_runs(job, state=state, result=result, error_summary=error_summary)

    def _connect(self) -> AsyncTransport:
        return _InMemory(self._site)


class _InMemory(AsyncTransport):
    def __init__(self, site: FakeSite) -> None:
        super().__init__(TARGET)
        self._site = site

    async def _perform(self, effect: Request | Pause | Now) -> Reply | float:
        return self._site.perform(effect)

    async def _open(self, request: Request) -> NoReturn:
        self._site.refuse_stream(request)
