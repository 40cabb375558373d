"""Calls to the cluster over mTLS as admin-cli: each address in turn until one responds; `connect` chooses these or REST."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from toban_cli import report
from toban_cli.cluster_config import Settings, read_settings
from toban_cli.read_tickets import ReadTickets

if TYPE_CHECKING:
    from toban_cli.rest.site import Site
    from toban_transport.replica_client import Fleet

CALL_SECONDS = 10.0
# Servers end streams after an hour; callers open them again.
STREAM_SECONDS = 3600.0
ARCHIVE_SECONDS = 60.0
# Log-archivers cut a search long before.
SEARCH_SECONDS = 60.0
# As toban_transport.person_rules.CREDENTIAL, which is not loaded for every command.
CREDENTIAL = "toban-credential"
# The largest page of the servers.
PAGE = 500
HINT = "`toban doctor` shows the cause; `make up` starts the local stack of a clone"


class Client:
    """The calls of the commands. Method names are those of proto/toban_proto/v1."""

    can_describe = True
    """`describe_log` is at hand."""

    def __init__(self, settings: Settings) -> None:
        from toban_transport.tls import TlsFiles

        self._settings = settings
        self.token = settings.token
        # The person, for coordinators; "" = the certificate itself acts.
        self._metadata = ((CREDENTIAL, settings.token),) if settings.token else ()
        self._tls = TlsFiles(settings.tls_dir)
        self.coordinators = self._fleet("coordinator", settings.coordinators)
        self.archivers = self.new_archivers()
        self._tickets = ReadTickets(lambda request: self.read("GetReadTicket", request))

    def new_archivers(self) -> Fleet:
        """Connections of their own to the log-archivers, for a thread; its owner closes them."""
        return self._fleet("log-archiver", self._settings.log_archivers)

    def _fleet(self, service: str, addresses: tuple[str, ...]) -> Fleet:
        from toban_transport.replica_client import Fleet

        return Fleet(
            service=service, addresses=addresses, tls=self._tls, trust_domain=self._settings.trust_domain, hint=HINT
        )

    def read(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """A call to JobReader."""
        return self.coordinators.call(
            lambda channel: getattr(_stubs().JobReaderStub(channel), method),
            request,
            timeout=timeout,
            metadata=self._metadata,
        )

    def control(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """A call to JobControl."""
        return self.coordinators.call(
            lambda channel: getattr(_stubs().JobControlStub(channel), method),
            request,
            timeout=timeout,
            metadata=self._metadata,
        )

    def operate(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """A call to Operations."""
        return self.coordinators.call(
            lambda channel: getattr(_stubs().OperationsStub(channel), method),
            request,
            timeout=timeout,
            metadata=self._metadata,
        )

    def accounts(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """A call to Accounts."""
        return self.coordinators.call(
            lambda channel: getattr(_stubs().AccountsStub(channel), method),
            request,
            timeout=timeout,
            metadata=self._metadata,
        )

    def webhooks(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """A call to Webhooks."""
        from toban_proto.v1.webhooks_pb2_grpc import WebhooksStub

        return self.coordinators.call(
            lambda channel: getattr(WebhooksStub(channel), method), request, timeout=timeout, metadata=self._metadata
        )

    def hooks(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """A call to Hooks."""
        from toban_proto.v1.hooks_pb2_grpc import HooksStub

        return self.coordinators.call(
            lambda channel: getattr(HooksStub(channel), method), request, timeout=timeout, metadata=self._metadata
        )

    def watch(self, request: Any) -> Iterator[Any]:
        """The run now and at each change of state, until the stream ends."""
        return self.coordinators.stream(
            lambda channel: _stubs().JobReaderStub(channel).WatchRun,
            request,
            timeout=STREAM_SECONDS,
            metadata=self._metadata,
        )

    def log(self, request: Any, fleet: Fleet | None = None) -> Iterator[Any]:
        """Lines of a run. With follow the stream ends with its read ticket (DEADLINE_EXCEEDED)."""
        seconds = self._tickets.add(request, [request.run_id])
        return (fleet or self.archivers).stream(
            lambda channel: _log_stubs().LogReaderStub(channel).Read,
            request,
            timeout=seconds if request.follow else STREAM_SECONDS,
        )

    def search_log(self, request: Any) -> Iterator[Any]:
        """Lines of many runs, until the search is at its end or cut. Leaves out of its run_ids what the person may not see."""
        self._tickets.add(request, request.run_ids)
        return self.archivers.stream(
            lambda channel: _log_stubs().LogReaderStub(channel).Search, request, timeout=SEARCH_SECONDS
        )

    def describe_log(self, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """What is stored of a run's output."""
        self._tickets.add(request, [request.run_id])
        return self.archivers.call(
            lambda channel: _log_stubs().LogReaderStub(channel).Describe, request, timeout=timeout
        )

    def archive(self, method: str, request: Any) -> Any:
        """A call to LogArchive. Whole days are counted for it."""
        return self.archivers.call(
            lambda channel: getattr(_log_stubs().LogArchiveStub(channel), method), request, timeout=ARCHIVE_SECONDS
        )

    def archive_stream(self, method: str, request: Any) -> Iterator[Any]:
        """What LogArchive does, as it does it."""
        return self.archivers.stream(
            lambda channel: getattr(_log_stubs().LogArchiveStub(channel), method), request, timeout=STREAM_SECONDS
        )

    def wait_for_site(self) -> None:
        """Nothing to change: calls of the coordinators try each address, and `attend` waits for them."""

    def attend(self, run_id: int, *, show_log: bool, query: Any = None, printer: Any = None) -> Any:
        """The run in its terminal state; its output is shown meanwhile."""
        from toban_cli.follow import attend

        return attend(self, run_id, show_log=show_log, query=query, printer=printer)

    def close(self) -> None:
        """Ends the connections."""
        self.coordinators.close()
        self.archivers.close()


@contextmanager
def connect(*, waits: bool = False) -> Iterator[Client]:
    """A client from the environment, over REST where that names a site; connects at the first call.

    A `waits` one is for a command that waits for a run: a site that is away or has no room for a while does not end it.
    """
    from toban_cli.rest.site import read_site

    site = read_site(os.environ)
    client = _direct() if site is None else _over_rest(site)
    if waits:
        client.wait_for_site()
    try:
        yield client
    finally:
        client.close()


def _direct() -> Client:
    # Read when gRPC is imported: without it a fork of this process would log warnings.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return Client(read_settings(os.environ))


def _over_rest(site: Site) -> Client:
    from toban_cli.rest.client import RestClient
    from toban_cli.rest.site import LOCAL

    # The coordinators of the local stack are at hand for what has no route.
    return cast("Client", RestClient(site, _direct if site.name == LOCAL else None))


def collect(fetch: Callable[[Any], Any], field: str, limit: int) -> tuple[list[Any], bool]:
    """The first `limit` items of a list, and whether there are more; `fetch` returns the response to a Page, with items in its `field`."""
    from toban_proto.v1.common_pb2 import Page

    found: list[Any] = []
    cursor = ""
    while len(found) < limit:
        answer = fetch(Page(limit=min(limit - len(found), PAGE), cursor=cursor))
        found += getattr(answer, field)
        cursor = answer.next_cursor
        if not cursor:
            return found, False
    return found, True


def note_more(noun: str, limit: int) -> None:
    """A note that a list is incomplete."""
    report.note(f"there are more than {limit} {noun}; --limit shows more of them")


def _stubs() -> Any:
    from toban_proto.v1 import coordinator_pb2_grpc

    return coordinator_pb2_grpc


def _log_stubs() -> Any:
    from toban_proto.v1 import logs_pb2_grpc

    return logs_pb2_grpc
