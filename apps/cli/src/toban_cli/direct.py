"""Calls of the cluster over mTLS as admin-cli: each address in turn until one responds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from toban_cli.log_reader import position_after
from toban_cli.ports import AWAY, CALL_SECONDS, OUTAGE_SECONDS, RunSource
from toban_cli.read_tickets import ReadTickets
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import TERMINAL
from toban_proto.v1.coordinator_pb2 import GetRunRequest
from toban_proto.v1.logs_pb2 import DescribeLogRequest

if TYPE_CHECKING:
    from toban_cli.cluster_config import Settings
    from toban_transport.client_calls import Metadata
    from toban_transport.replica_client import Fleet

# Servers end streams after an hour; callers open them again.
STREAM_SECONDS = 3600.0
# Log-archivers cut a search long before.
SEARCH_SECONDS = 60.0
# Between two polls or attempts, seconds.
PAUSE_SECONDS = 0.1
# How long the last lines of a run that is over may take to arrive, seconds.
SEAL_SECONDS = 5.0
# The same when no line is known of: a run that wrote nothing leaves nothing that could be sealed.
QUIET_SECONDS = 0.3
# As toban_transport.person_rules.CREDENTIAL, which is not loaded for every command.
CREDENTIAL = "toban-credential"
HINT = "`toban doctor` shows the cause; `toban dev` starts a local stack"


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

    def run_source(self, run_id: int) -> RunSource:
        return DirectSource(self, run_id)

    def close(self) -> None:
        """Ends the connections."""
        self.coordinators.close()
        self.archivers.close()


class DirectSource:
    """A run at the coordinators, and its output at the log-archivers, which end at different moments.

    While the caller reads the output, a thread watches the run. After its end the thread waits until the output is sealed.
    """

    def __init__(self, client: DirectClient, run_id: int) -> None:
        self._client = client
        self._run_request, self._log_request = GetRunRequest(id=run_id), DescribeLogRequest(run_id=run_id)
        self._fleet = client.new_archivers()
        self._watcher: Thread | None = None
        self._closed, self._over = Event(), Event()
        self._failure: TobanError | None = None
        self._has_ended = False
        # Tokens of the run's latest dispatch, and of the last attempt whose output is complete.
        self._latest_token = self._ended_token = 0
        # Token → number of its last line that was read, shown or not.
        self._lines: dict[int, int] = {}

    def read(self) -> Any:
        if self._failure is not None:
            raise self._failure
        failures = 0
        while True:
            try:
                return self._client.call("JobReader.GetRun", self._run_request)
            except TobanError as error:
                failures += 1
                if error.code not in AWAY or failures * PAUSE_SECONDS > OUTAGE_SECONDS or self._closed.is_set():
                    raise
            self._closed.wait(PAUSE_SECONDS)

    def has_ended(self) -> bool:
        return self._has_ended

    def await_end(self) -> None:
        for run in self._client.stream("JobReader.WatchRun", self._run_request):
            self._latest_token = run.token
            if run.state in TERMINAL:
                return

    def output(self, request: Any, on_outage: Callable[[str], None]) -> Iterator[Any]:
        if self._watcher is None:
            self._watcher = Thread(target=self._watch, name="run", daemon=True)
            self._watcher.start()
        while not self._over.is_set():
            try:
                answers = self._client.stream("LogReader.Read", self._query(request), self._fleet)
                try:
                    yield from self._record(answers)
                except TobanError as error:
                    # A stream ends at its deadline, at the latest with its read ticket.
                    if error.code is not ErrorCode.DEADLINE_EXCEEDED:
                        raise
            except TobanError as error:
                # After the end of the run the output is tried until it is sealed, and what is missing then is read at last.
                if not self._has_ended:
                    on_outage(error.message)
            except ValueError:
                # gRPC refuses calls on a channel that was closed under it: the run has ended.
                break
            # The output of a retry of the run begins under a larger token.
            while not self._over.wait(PAUSE_SECONDS) and self._ended_token and self._latest_token <= self._ended_token:
                continue
        try:
            yield from self._missing(request)
        except TobanError as error:
            on_outage(error.message)

    def close(self) -> None:
        self._closed.set()
        self._fleet.close()
        if self._watcher is not None and self._watcher.is_alive():
            # Ends the stream that the thread waits on. A command that leaves a run early makes no further call.
            self._client.coordinators.close()
            self._watcher.join(timeout=SEAL_SECONDS)

    def _watch(self) -> None:
        try:
            run = None
            while run is None or run.state not in TERMINAL:
                try:
                    self.await_end()
                except TobanError as error:
                    if error.code not in AWAY:
                        raise
                    self._closed.wait(PAUSE_SECONDS)
                run = self.read()
            self._has_ended, self._latest_token = True, run.token
            waited = 0.0
            while run.token and waited < self._seal_timeout(run) and not self._closed.wait(PAUSE_SECONDS):
                waited += PAUSE_SECONDS
        except TobanError as error:
            if not self._has_ended:
                self._failure = error
        except ValueError:
            # The connections were closed.
            return
        finally:
            self._over.set()
            self._fleet.close()

    def _seal_timeout(self, run: Any) -> float:
        """How long the rest of the output may take to arrive, seconds: no time when it is complete."""
        stored = [item for item in self._attempts() if item.token == run.token]
        if any(item.sealed for item in stored):
            return 0.0
        return SEAL_SECONDS if stored or run.last_line else QUIET_SECONDS

    def _attempts(self) -> Any:
        return self._client.call("LogReader.Describe", self._log_request).attempts

    def _query(self, request: Any, **fields: Any) -> Any:
        """The request to follow the output, or with `fields` to read it."""
        query = type(request)()
        query.CopyFrom(request)
        query.follow = not fields
        if fields or self._ended_token:
            query.ClearField("after")
            query.token = self._latest_token
        for name, value in fields.items():
            setattr(query, name, value)
        return query

    def _record(self, answers: Iterator[Any]) -> Iterator[Any]:
        for answer in answers:
            token, seq = position_after(answer)
            if token:
                self._lines[token] = max(seq, self._lines.get(token, 0))
            if answer.at_end:
                self._ended_token = answer.token
            yield answer

    def _missing(self, request: Any) -> Iterator[Any]:
        """Reads what is stored beyond the lines that were read."""
        if self._failure is not None:
            return
        queries = [self._query(request, token=0)]
        if self._lines or not request.tail:
            queries = [
                self._query(request, token=item.token, from_seq=self._lines.get(item.token, 0) + 1, tail=0)
                for item in self._attempts()
                if item.last_seq > self._lines.get(item.token, 0) and item.token >= min(self._lines, default=0)
            ]
        for query in queries:
            yield from self._record(self._client.stream("LogReader.Read", query))


def _stub(method: str, request: Any) -> Callable[[Any], Any]:
    """A method of the generated stubs, which stand in the file of its request."""
    service, _, name = method.partition(".")
    module = import_module(request.DESCRIPTOR.file.name.removesuffix(".proto").replace("/", ".") + "_pb2_grpc")
    return lambda channel: getattr(getattr(module, f"{service}Stub")(channel), name)
