"""The real site with real mTLS, over a coordinator and a log-archiver with responses that the test sets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from google.protobuf.message_factory import GetMessageClass

from toban_admin_web.config import AdminWebConfig
from toban_admin_web.decide.log_blocks import LEVELS
from toban_admin_web.main.worker import SiteWorker
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import (
    coordinator_pb2_grpc,
    hooks_pb2,
    hooks_pb2_grpc,
    logs_pb2,
    logs_pb2_grpc,
    webhooks_pb2,
    webhooks_pb2_grpc,
)
from toban_proto.v1.common_pb2 import ReadTicket
from toban_testing.new_site import PATIENT_SECONDS, new_site
from toban_testing.new_site import production_waits as production_waits
from toban_testing.served_cluster import ServedCluster
from toban_testing.site_accounts import SESSION, Accounts
from toban_testing.site_flows import flow_responses
from toban_testing.site_messages import (
    TOKEN,
    archive_message,
    audit_entry,
    cluster_message,
    executor_message,
    job_message,
    line,
    load_message,
    now_of_this_test,  # noqa: F401 (a fixture)
    operations_responses,
    overview_message,
    run,
    schedule_message,
    stamp,
)
from toban_transport.server import metadata

# Lines in one part of an answer.
BATCH_LINES = 200


class Reader(
    coordinator_pb2_grpc.JobReaderServicer,
    coordinator_pb2_grpc.OperationsServicer,
    coordinator_pb2_grpc.JobControlServicer,
    webhooks_pb2_grpc.WebhooksServicer,
    hooks_pb2_grpc.HooksServicer,
):
    """Records requests and returns `responses` by method: a message, an exception, or a function of the request."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.metadata: list[Mapping[str, str]] = []
        self.seconds: list[float] = []  # What the deadline of each request left.
        self.silent = False
        self.responses: dict[str, Any] = {
            "GetCluster": cluster_message(),
            "GetOverview": overview_message(),
            "GetComingLoad": load_message(),
            "GetArchive": archive_message(),
            "CountRuns": lambda asked: pb.RunCounts(since=asked.filter.active_from, until=asked.filter.active_until),
            "ListRuns": pb.ListRunsResponse(runs=[run(7, "SUCCEEDED", finished_at=stamp(28), exit_code=0)]),
            "ListJobs": pb.ListJobsResponse(jobs=[job_message()]),
            "GetJob": job_message(),
            "ListJobVersions": pb.ListJobVersionsResponse(versions=[pb.JobVersion(version=3, spec_json="{}")]),
            "ListSchedules": pb.ListSchedulesResponse(schedules=[schedule_message()]),
            "GetSchedule": schedule_message(),
            "NextSlots": pb.NextSlotsResponse(
                slots=[pb.NextSlot(at=stamp(-60), local="2026-11-21T03:00:00+01:00", rule_note="fold first")]
            ),
            "ListFires": pb.ListFiresResponse(
                fires=[pb.Fire(first_slot=stamp(60), slots=1, outcome="fired", run_id=7)]
            ),
            **operations_responses(),
            **flow_responses(),
            "GetRun": run(),
            "ExplainRun": pb.RunExplanation(state="RUNNING", reasons=["it runs on executor-1"]),
            "GetRunUsage": pb.RunUsage(run_id=1, note="its executor has no sample yet"),
            "RerunRun": pb.RerunRunResponse(run_id=12, created=True),
            "GetReadTicket": pb.GetReadTicketResponse(ticket=ReadTicket(body=b"a ticket"), valid_seconds=60),
        }

    async def _response(self, method: str, kind: type, request: Any, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(metadata(context))
        self.seconds.append(context.time_remaining())
        if self.silent:
            await asyncio.Event().wait()
        response = self.responses.get(method, kind())
        if isinstance(response, Exception):
            raise response
        return response(request) if callable(response) else response


def _method(name: str, kind: type) -> Any:
    async def response(self: Reader, request: Any, context: Any) -> Any:
        return await self._response(name, kind, request, context)

    return response


class Logs(logs_pb2_grpc.LogReaderServicer):
    """Lines by token; a call with follow waits for more lines until the token is sealed."""

    def __init__(self) -> None:
        self.lines: dict[int, list[logs_pb2.LogLine]] = {TOKEN: [line(1), line(2)]}
        self.sealed: set[int] = set()
        self.requests: list[Any] = []
        self.silent = False
        self.failure: TobanError | None = None
        self.selection_failure: TobanError | None = None
        # Of a search: messages and exceptions; None = the lines that match.
        self.found: list[Any] | None = [logs_pb2.SearchLogResponse()]
        self.changed = asyncio.Condition()

    async def Search(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        if self.found is None:
            hits = [
                logs_pb2.LogHit(run_id=request.run_ids[0], token=token, line=one)
                for token, one in self._matching(request)
            ]
            cut = "lines" if len(hits) > request.limit else ""
            yield logs_pb2.SearchLogResponse(hits=hits[: request.limit], cut=cut, runs=1)
            return
        for one in self.found:
            if isinstance(one, Exception):
                raise one
            yield one

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        if self.failure is not None:
            raise self.failure
        if self.selection_failure is not None and request.streams:
            raise self.selection_failure
        if self.silent:
            await asyncio.Event().wait()
        if not request.follow:
            for token, lines in self._selected(request):
                for start in range(0, len(lines), BATCH_LINES):
                    yield logs_pb2.ReadLogResponse(token=token, lines=lines[start : start + BATCH_LINES])
            return
        sent: dict[int, int] = {}
        while True:
            wanted = [token for token in sorted(self.lines) if request.token in (0, token)]
            for token in wanted:
                first = max(sent.get(token, 0) + 1, request.from_seq)
                fresh = [one for one in self.lines[token] if one.seq >= first]
                if fresh:
                    sent[token] = fresh[-1].seq
                    yield logs_pb2.ReadLogResponse(token=token, lines=fresh)
            if wanted and wanted[-1] in self.sealed:
                yield logs_pb2.ReadLogResponse(token=wanted[-1], at_end=True)
                return
            async with self.changed:
                await self.changed.wait()

    def _matching(self, request: Any) -> list[tuple[int, Any]]:
        flat = [(token, one) for token in sorted(self.lines) for one in self.lines[token]]
        pattern = re.compile((request.grep if request.regex else re.escape(request.grep)).encode())
        return [
            (token, one)
            for token, one in flat
            if pattern.search(one.text) and (not request.streams or one.stream in request.streams)
        ]

    def _selected(self, request: Any) -> list[tuple[int, list[Any]]]:
        """What a read without follow gives, as a log-archiver would."""
        tokens = set(request.tokens) or ({request.token} if request.token else set(self.lines))
        after = (request.after.token, request.after.seq)
        found = [
            (token, one)
            for token in sorted(tokens & set(self.lines))
            for one in self.lines[token]
            if (token, one.seq) > after and one.seq >= request.from_seq
            if not request.to_seq or one.seq <= request.to_seq
            if not request.streams or one.stream in request.streams
            if not request.level or (one.level and LEVELS.index(one.level) >= LEVELS.index(request.level))
        ]
        found = found[-request.tail :] if request.tail else found[: request.head or None]
        return [(token, [one for _, one in group]) for token, group in groupby(found, key=lambda pair: pair[0])]


for _messages, _service in (
    *((pb, name) for name in ("JobReader", "Operations", "JobControl")),
    (webhooks_pb2, "Webhooks"),
    (hooks_pb2, "Hooks"),
):
    for _one in _messages.DESCRIPTOR.services_by_name[_service].methods:
        setattr(Reader, _one.name, _method(_one.name, GetMessageClass(_one.output_type)))


class FakeCluster(ServedCluster):
    """A coordinator with the services of the site, and those of `further`; and a log-archiver."""

    def __init__(self, tls: Path, further: Any = None) -> None:
        self.reader, self.logs, self.accounts = Reader(), Logs(), Accounts()
        self._further = further
        more = [
            (coordinator_pb2_grpc.add_OperationsServicer_to_server, self.reader),
            (coordinator_pb2_grpc.add_JobControlServicer_to_server, self.reader),
            (webhooks_pb2_grpc.add_WebhooksServicer_to_server, self.reader),
            (hooks_pb2_grpc.add_HooksServicer_to_server, self.reader),
        ]
        if further is not None:
            further.prepare(self)
            more = further.services
        coordinator = [
            (coordinator_pb2_grpc.add_JobReaderServicer_to_server, self.reader),
            (coordinator_pb2_grpc.add_AccountsServicer_to_server, self.accounts),
            *more,
        ]
        log_archiver = [(logs_pb2_grpc.add_LogReaderServicer_to_server, self.logs)]
        super().__init__(tls, coordinator=coordinator, log_archiver=log_archiver, people=further)

    def renew(self, further: Any) -> None:
        """As when it was made, for another test with its own `further`."""
        for one in (self.reader, self.logs, self.accounts):
            vars(one).clear()
            vars(one).update(vars(type(one)()))
        if further is not None:
            # What is served is a method of the first one: it is the same object as this one from now on.
            self._further.__dict__ = further.__dict__
            further.prepare(self)

    def write(self, *lines: logs_pb2.LogLine, token: int = TOKEN, sealed: bool = False) -> None:
        """Appends output, which calls with follow receive at once."""

        async def add() -> None:
            self.logs.lines.setdefault(token, []).extend(lines)
            if sealed:
                self.logs.sealed.add(token)
            async with self.logs.changed:
                self.logs.changed.notify_all()

        self.do(add())


@dataclass
class Web:
    """The application over a FakeCluster, and a client of it."""

    cluster: FakeCluster
    worker: SiteWorker
    client: FlaskClient = field(init=False)
    # Builders of messages.
    run = staticmethod(run)
    line = staticmethod(line)
    stamp = staticmethod(stamp)
    job = staticmethod(job_message)
    schedule = staticmethod(schedule_message)
    executor = staticmethod(executor_message)
    audit_entry = staticmethod(audit_entry)
    whole = staticmethod(cluster_message)
    token = TOKEN

    def __post_init__(self) -> None:
        self.client = self.worker.app.test_client()
        self.client.set_cookie("toban-session", SESSION)

    def get(self, path: str, **headers: str) -> Any:
        """A response of the site; header names are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(path, headers=named)

    def page(self, path: str, **headers: str) -> str:
        """The text of a page, which must exist."""
        response = self.get(path, **headers)
        assert response.status_code == 200, response.get_data(as_text=True)
        return str(response.get_data(as_text=True))

    def post(self, path: str, **fields: str) -> Any:
        """The answer to a form of the page at `path`, with the hidden fields that the page has."""
        page = self.page(path)
        [(action, body)] = re.findall(r'<form class="action"[^>]* action="([^"]*)">(.*?)</form>', page, re.DOTALL)
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', body))
        self.cluster.reader.requests.clear()
        return self.client.post(action, data={**hidden, **fields}, headers={"Origin": "http://localhost"})

    def asked(self, kind: type) -> list[Any]:
        """The requests of one kind that the coordinator has had."""
        return [one for one in self.cluster.reader.requests if isinstance(one, kind)]

    def refuse(self, method: str, code: ErrorCode, message: str = "no") -> None:
        """Makes a method of the coordinator fail."""
        self.cluster.reader.responses[method] = TobanError(code, message)


@pytest.fixture
def further() -> Any:
    """What else the coordinator serves (api/conftest.py)."""
    return None


@pytest.fixture(scope="session")
def clusters() -> Iterator[dict[type, FakeCluster]]:
    """The clusters of this process that no test uses now, by the class of `further`."""
    kept: dict[type, FakeCluster] = {}
    yield kept
    for one in kept.values():
        one.close()


@pytest.fixture
def cluster(tls: Path, further: Any, clusters: dict[type, FakeCluster]) -> Iterator[FakeCluster]:
    """A running cluster as a new one is. After a test that stopped a server the next one gets another."""
    fake = clusters.pop(type(further), None)
    if fake is None:
        fake = FakeCluster(tls, further)
    else:
        fake.renew(further)
    yield fake
    if fake.stopped:
        fake.close()
    else:
        clusters[type(further)] = fake


@pytest.fixture
def new_web(cluster: FakeCluster, tls: Path) -> Iterator[Callable[..., Web]]:
    """Makes sites over the cluster, with any settings."""
    made: list[SiteWorker] = []

    def make(**given: Any) -> Web:
        # Tests make more requests than a person.
        values = {"coordinators": (cluster.coordinator,), "log_archivers": (cluster.archiver,), "api_rate": 0}
        values |= {"request_seconds": PATIENT_SECONDS}
        made.append(new_site(AdminWebConfig(tls_dir=tls / "admin-web", **(values | given))))
        return Web(cluster, made[-1])

    yield make
    for worker in made:
        worker.close()


@pytest.fixture
def web(new_web: Callable[..., Web]) -> Web:
    """A site over the cluster."""
    return new_web()
