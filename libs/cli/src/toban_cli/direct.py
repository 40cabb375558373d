"""Calls of the cluster over mTLS as admin-cli: each address in turn until one responds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from toban_cli.ports import CALL_SECONDS
from toban_cli.read_tickets import ReadTickets

if TYPE_CHECKING:
    from toban_cli.cluster_config import Settings
    from toban_transport.client_calls import Metadata
    from toban_transport.replica_client import Fleet

# Servers end streams after an hour; callers open them again.
STREAM_SECONDS = 3600.0
# Log-archivers cut a search long before.
SEARCH_SECONDS = 60.0
# As toban_transport.person_rules.CREDENTIAL, which is not loaded for every command.
CREDENTIAL = "toban-credential"
HINT = "`toban doctor` shows the cause; `make up` starts the local stack of a clone"


class DirectClient:
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
        self._add_ticket(method, request)
        fleet, metadata = self._callee(method)
        return fleet.call(_stub(method, request), request, timeout=timeout, metadata=metadata)

    def stream(self, method: str, request: Any, fleet: Fleet | None = None) -> Iterator[Any]:
        """`fleet` replaces the connections."""
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

    def close(self) -> None:
        """Ends the connections."""
        self.coordinators.close()
        self.archivers.close()


def _stub(method: str, request: Any) -> Callable[[Any], Any]:
    """A method of the generated stubs, which stand in the file of its request."""
    service, _, name = method.partition(".")
    module = import_module(request.DESCRIPTOR.file.name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")
    return lambda channel: getattr(getattr(module, f"{service}Stub")(channel), name)
