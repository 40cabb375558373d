"""`FakeClient`: a client whose site is in memory."""

from __future__ import annotations

from typing import Any, NoReturn

from toban.client.flow import Now, Pause, Reply, Request
from toban.client.models import EndState
from toban.client.sync_client import Client
from toban.client.sync_transport import SyncTransport
from toban.testing.fake_site import TARGET, FakeSite


class FakeClient(Client):
    """A Client whose site is in memory and has these jobs. It starts, reads, lists and cancels runs, and emits and lists events.

    Nothing is run: a run is PENDING until `end_runs` or a cancel ends it, its payload is the one that was given, and events start nothing.
    What a site refuses raises the error of `toban.errors` here too, and what is not in memory NotImplementedError.

    >>> client = FakeClient("invoice")
    >>> client.end_runs("invoice", result={"rows": 3})
    >>> client.runs.wait(client.runs.start("invoice", {"id": 7}).run_id).result
    {'rows': 3}
    >>> [run.payload for run in client.runs.list(job="invoice")]
    [{'id': 7}]
    """

    def __init__(self, *jobs: str) -> None:
        self._site = FakeSite(jobs)
        super().__init__(TARGET)

    def end_runs(self, job: str, state: EndState = "SUCCEEDED", *, result: Any = None, error_summary: str = "") -> None:
        """Ends the runs of a job that have not ended, and each one that is started later, at once. Raises ValueError for an unknown job."""
        self._site.end_runs(job, state=state, result=result, error_summary=error_summary)

    def _connect(self) -> SyncTransport:
        return _InMemory(self._site)


class _InMemory(SyncTransport):
    def __init__(self, site: FakeSite) -> None:
        super().__init__(TARGET)
        self._site = site

    def _perform(self, effect: Request | Pause | Now) -> Reply | float:
        return self._site.perform(effect)

    def _open(self, request: Request) -> NoReturn:
        self._site.refuse_stream(request)
