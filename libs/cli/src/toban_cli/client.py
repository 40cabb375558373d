"""Calls to the cluster over mTLS as admin-cli: each address in turn until one responds; `connect` chooses these or REST."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from toban_cli import report
from toban_cli.cluster_config import Settings, read_settings
from toban_cli.read_tickets import ReadTickets

if TYPE_CHECKING:
    from toban_cli.rest.site import Site
    from toban_transport.client_calls import Metadata
    from toban_transport.replica_client import Fleet

CALL_SECONDS = 10.0
# Servers end streams after an hour; callers open them again.
STREAM_SECONDS = 3600.0
# Log-archivers cut a search long before.
SEARCH_SECONDS = 60.0
# As toban_transport.person_rules.CREDENTIAL, which is not loaded for every command.
CREDENTIAL = "toban-credential"
# The largest page of the servers.
PAGE = 500
HINT = "`toban doctor` shows the cause; `make up` starts the local stack of a clone"


class Client:
    """The calls of the commands. Methods have the names of proto/toban_proto/v1, such as JobReader.GetRun."""

    can_describe = True
    """LogReader.Describe is at hand."""

    def __init__(self, settings: Settings) -> None:
        from toban_transport.tls import TlsFiles

        self._settings = settings
        self.token = settings.token
        # The person, for coordinators; "" = the certificate itself acts.
        self._metadata = ((CREDENTIAL, settings.token),) if settings.token else ()
        self._tls = TlsFiles(settings.tls_dir)
        self.coordinators = self._fleet("coordinator", settings.coordinators)
        self.archivers = self.new_archivers()
        self._tickets = ReadTickets(lambda request: self.call("JobReader.GetReadTicket", request))

    def new_archivers(self) -> Fleet:
        """Connections of their own to the log-archivers, for a thread; its owner closes them."""
        return self._fleet("log-archiver", self._settings.log_archivers)

    def _fleet(self, service: str, addresses: tuple[str, ...]) -> Fleet:
        from toban_transport.replica_client import Fleet

        return Fleet(
            service=service, addresses=addresses, tls=self._tls, trust_domain=self._settings.trust_domain, hint=HINT
        )

    def call(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """The answer to a call of a `Service.Method`; `timeout` is in seconds. Raises TobanError."""
        self._add_ticket(method, request)
        fleet, metadata = self._callee(method)
        return fleet.call(_stub(method, request), request, timeout=timeout, metadata=metadata)

    def stream(self, method: str, request: Any, fleet: Fleet | None = None) -> Iterator[Any]:
        """The answers of a streaming `Service.Method` until its end; `fleet` replaces the connections. Raises TobanError.

        A followed log ends with its read ticket (DEADLINE_EXCEEDED). A search leaves out of its run_ids what the person may not see.
        """
        seconds = self._add_ticket(method, request)
        callee, metadata = self._callee(method)
        return (fleet or callee).stream(_stub(method, request), request, timeout=seconds, metadata=metadata)

    def _callee(self, method: str) -> tuple[Fleet, Metadata]:
        return (self.archivers, ()) if method.startswith("Log") else (self.coordinators, self._metadata)

    def _add_ticket(self, method: str, request: Any) -> float:
        """Puts a read ticket into a request of LogReader; how long a stream of the method may last, seconds."""
        if not method.startswith("LogReader."):
            return STREAM_SECONDS
        is_search = method == "LogReader.Search"
        seconds = self._tickets.add(request, request.run_ids if is_search else [request.run_id])
        if is_search:
            return SEARCH_SECONDS
        return seconds if method == "LogReader.Read" and request.follow else STREAM_SECONDS

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


def _stub(method: str, request: Any) -> Callable[[Any], Any]:
    """A method of the generated stubs, which stand in the file of its request."""
    service, _, name = method.partition(".")
    module = import_module(request.DESCRIPTOR.file.name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")
    return lambda channel: getattr(getattr(module, f"{service}Stub")(channel), name)
