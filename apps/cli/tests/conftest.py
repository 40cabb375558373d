"""A cluster for the command line to talk to: the real server over mTLS, with answers that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer.main

from apps.cli.tests.fake_log_archiver import Archive, Logs
from toban_admin_web.config import AdminWebConfig
from toban_cli import main
from toban_cli.main import run
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import (
    coordinator_pb2_grpc,
    hooks_pb2,
    hooks_pb2_grpc,
    joining_pb2,
    joining_pb2_grpc,
    logs_pb2_grpc,
    webhooks_pb2,
    webhooks_pb2_grpc,
)
from toban_proto.v1.common_pb2 import ReadTicket
from toban_testing.http_server import serving
from toban_testing.new_site import PATIENT_SECONDS, new_site
from toban_testing.served_cluster import ServedCluster

# Half of the time of a command in these tests was Typer's, which makes each command of a noun of its function: once a process is enough here.
main.build = cache(main.build)
typer.main.get_command = cache(typer.main.get_command)

# Modules whose tests run twice: with calls of the coordinators, and over REST through a real site.
BOTH_WAYS = frozenset(
    [
        "test_audit",
        "test_cluster",
        "test_commands",
        "test_crontab_apply",
        "test_definitions",
        "test_events",
        "test_executors",
        "test_limits",
        "test_lists",
        "test_run_changes",
        "test_run_filter",
        "test_schedules",
        "test_settings",
        "test_users",
    ]
)
# Their tests that are about one way.
DIRECT_ONLY = {
    "test_adopt_epoch_asks_first_and_says_what_it_used": "it has no route",
    "test_an_export_is_verified_without_a_cluster": "an export has no route",
    "test_an_export_for_spreadsheets": "an export has no route",
    "test_passwords_come_from_standard_input": "the first administrator has no route",
    "test_mistakes_that_the_server_finds_are_one_line_each": "test_rest_http has the places of mistakes over REST",
    "test_a_log_that_is_complete_is_not_read_again": "over REST the site decides when a log is complete",
    "test_follow_goes_on_when_no_output_can_be_read": "test_rest_logs",
    "test_an_interrupted_wait_says_that_the_run_goes_on": "test_rest_logs",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Gives `cluster` both ways to the tests that have both."""
    name = metafunc.module.__name__.rpartition(".")[2]
    if name in BOTH_WAYS and "cluster" in metafunc.fixturenames and metafunc.function.__name__ not in DIRECT_ONLY:
        metafunc.parametrize("cluster", ["direct", "rest"], indirect=True)


class Answers:
    """Keeps requests, gives the answers of the test."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: dict[str, Any] = {}

    def answer(self, method: str, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


class Control(Answers, coordinator_pb2_grpc.JobControlServicer):
    """Changes of jobs and runs."""


class Reader(Answers, coordinator_pb2_grpc.JobReaderServicer):
    """Answers from `answers`; `runs` are what WatchRun sends, the last of them is the run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[pb.Run] = []
        self.logged = asyncio.Event()
        self.hidden: set[int] = set()
        self.ticket_requests: list[list[int]] = []
        self.ticket_seconds = 60
        self.ticket_failure: TobanError | None = None
        self.ticket_failures: list[TobanError] = []
        """Each ends one call."""

    async def GetReadTicket(self, request: Any, context: Any) -> Any:
        """For the runs that are not `hidden`."""
        self.ticket_requests.append(list(request.run_ids))
        if self.ticket_failures:
            raise self.ticket_failures.pop(0)
        if self.ticket_failure is not None:
            raise self.ticket_failure
        visible = [run for run in request.run_ids if run not in self.hidden]
        ticket = ReadTicket(body=b"ticket %d" % len(self.ticket_requests))
        return pb.GetReadTicketResponse(ticket=ticket, run_ids=visible, valid_seconds=self.ticket_seconds)

    async def GetRun(self, request: Any, context: Any) -> Any:
        if not self.runs:
            raise TobanError(ErrorCode.RUN_NOT_FOUND, f"there is no run {request.id}; see `toban run list`")
        return self.runs[-1]

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[Any]:
        for run_now in self.runs[:-1]:
            yield run_now
        await self.logged.wait()
        yield self.runs[-1]


class Operations(Answers, coordinator_pb2_grpc.OperationsServicer):
    """What operators ask."""


class Accounts(Answers, coordinator_pb2_grpc.AccountsServicer):
    """What is asked about people. `people` by API token are those whom a site knows; its own questions are not kept."""

    def __init__(self) -> None:
        super().__init__()
        self.people: dict[str, Any] = {}
        self.password = ("", "", pb.AuthenticateResponse())
        """User, password, and the session that both give."""
        self.refusal: TobanError | None = None
        self.answers["GetAccountsState"] = pb.GetAccountsStateResponse(has_administrator=True)

    async def Authenticate(self, request: Any, context: Any) -> Any:
        if not self.people:
            return self.answer("Authenticate", request)
        user, password, entered = self.password
        if request.password and self.refusal is not None:
            raise self.refusal
        if request.password and (request.user, request.password) == (user, password):
            return entered
        if request.session and request.session == entered.session:
            return pb.AuthenticateResponse(user=entered.user, role=entered.role)
        if request.token not in self.people:
            raise TobanError(ErrorCode.UNAUTHENTICATED, "the API token is unknown or revoked")
        return self.people[request.token]


class Webhooks(Answers, webhooks_pb2_grpc.WebhooksServicer):
    """What is asked about webhooks."""


class Invites(Answers, joining_pb2_grpc.InvitesServicer):
    """What is asked about invites."""


class Hooks(Answers, hooks_pb2_grpc.HooksServicer):
    """What is asked about hooks."""


def _answered(method: str) -> Any:
    async def handle(self: Answers, request: Any, context: Any) -> Any:
        if method not in self.answers:
            self.requests.append(request)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, method)
        return self.answer(method, request)

    return handle


_OF_PEOPLE = (
    (pb, Control),
    (pb, Reader),
    (pb, Operations),
    (pb, Accounts),
    (webhooks_pb2, Webhooks),
    (hooks_pb2, Hooks),
    (joining_pb2, Invites),
)
for _module, _servicer in _OF_PEOPLE:
    _kind = next(base.__name__ for base in _servicer.__bases__ if base is not Answers).removesuffix("Servicer")
    for _name in {*_module.DESCRIPTOR.services_by_name[_kind].methods_by_name} - {*vars(_servicer)}:
        setattr(_servicer, _name, _answered(_name))


class FakeCluster(ServedCluster):
    """A coordinator and a log-archiver with every service that the command line calls."""

    def __init__(self, tls: Path) -> None:
        self.control, self.reader, self.logs = Control(), Reader(), Logs()
        self.operations = Operations()
        self.accounts, self.webhooks, self.hooks, self.invites = Accounts(), Webhooks(), Hooks(), Invites()
        self.archive = Archive()
        self.logs.reader = self.reader
        coordinator = [
            (coordinator_pb2_grpc.add_JobControlServicer_to_server, self.control),
            (coordinator_pb2_grpc.add_JobReaderServicer_to_server, self.reader),
            (coordinator_pb2_grpc.add_OperationsServicer_to_server, self.operations),
            (coordinator_pb2_grpc.add_AccountsServicer_to_server, self.accounts),
            (webhooks_pb2_grpc.add_WebhooksServicer_to_server, self.webhooks),
            (hooks_pb2_grpc.add_HooksServicer_to_server, self.hooks),
            (joining_pb2_grpc.add_InvitesServicer_to_server, self.invites),
        ]
        log_archiver = [
            (logs_pb2_grpc.add_LogReaderServicer_to_server, self.logs),
            (logs_pb2_grpc.add_LogArchiveServicer_to_server, self.archive),
        ]
        self._servicers = [servicer for _, servicer in (*coordinator, *log_archiver)]
        super().__init__(tls, coordinator=coordinator, log_archiver=log_archiver)

    def renew(self) -> None:
        """As when it was made."""
        for one in self._servicers:
            vars(one).clear()
            vars(one).update(vars(type(one)()))
        self.logs.reader = self.reader


@pytest.fixture(scope="session")
def clusters() -> Iterator[list[FakeCluster]]:
    """The cluster of this process, while no test uses it."""
    kept: list[FakeCluster] = []
    yield kept
    for one in kept:
        one.close()


@pytest.fixture
def cluster(
    tls: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, clusters: list[FakeCluster]
) -> Iterator[FakeCluster]:
    """A running cluster that the environment names: its coordinators, or with parameter `rest` a site before them."""
    fake = clusters.pop() if clusters else FakeCluster(tls)
    fake.renew()
    if getattr(request, "param", "direct") == "rest":
        with site_of(fake, tls) as url:
            monkeypatch.setenv("TOBAN_URL", url)
            monkeypatch.setenv("TOBAN_TOKEN", TOKEN)
            yield fake
    else:
        monkeypatch.setenv("TOBAN_COORDINATORS", fake.coordinator)
        monkeypatch.setenv("TOBAN_LOG_ARCHIVERS", fake.archiver)
        monkeypatch.setenv("TOBAN_TLS_DIR", str(tls))
        yield fake
    if fake.stopped:
        fake.close()
    else:
        clusters.append(fake)


TOKEN = "toban_pat_" + "0" * 64


@pytest.fixture
def site_before(tls: Path) -> Callable[[FakeCluster], AbstractContextManager[str]]:
    """Starts the real site before a cluster; the address is that of its plain HTTP."""
    return lambda fake: site_of(fake, tls)


@contextmanager
def site_of(fake: FakeCluster, tls: Path) -> Iterator[str]:
    """The real site before a cluster; its address. TOKEN is of an administrator."""
    fake.accounts.people[TOKEN] = pb.AuthenticateResponse(user="ada", role="admin")
    worker = new_site(
        AdminWebConfig(
            coordinators=(fake.coordinator,),
            log_archivers=(fake.archiver,),
            tls_dir=tls / "admin-web",
            api_rate=0,
            request_seconds=PATIENT_SECONDS,
        )
    )
    with serving(worker.app, worker.context.stopping.set) as url:
        yield url
    worker.close()


@pytest.fixture
def toban(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Runs a command: (exit code, stdout, stderr)."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("TOBAN_HOME", raising=False)

    def call(*argv: str) -> tuple[int, str, str]:
        # `--direct` and `--context` set them for the process of the command, which is that of the tests here.
        monkeypatch.setenv("TOBAN_DIRECT", "")
        monkeypatch.setenv("_TOBAN_CONTEXT", "")
        code = run(argv)
        out, err = capfd.readouterr()
        return code, out, err

    return call
