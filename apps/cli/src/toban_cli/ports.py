"""What commands need of the cluster; `toban_cli.direct` has it over mTLS, `toban_cli.rest.client` over REST."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from toban_domain.errors import ErrorCode, TobanError

CALL_SECONDS = 10.0
# A command that waits for a run goes on without a server for this long, seconds: a restart and a fail-over are much shorter.
OUTAGE_SECONDS = 60.0
# No server has answered.
AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED})


class Client(Protocol):
    """The calls of the commands. Methods have the names of proto/toban_proto/v1, such as JobReader.GetRun."""

    token: str
    """The API token of the person; "" = the certificate itself acts."""
    can_describe: bool
    """LogReader.Describe is at hand."""

    def call(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """The answer to a call; `timeout` is in seconds. Raises TobanError."""
        ...

    def stream(self, method: str, request: Any) -> Iterator[Any]:
        """The answers of a streaming method until its end. Raises TobanError.

        A followed log ends with its read ticket (DEADLINE_EXCEEDED). A search leaves out of its run_ids what the person may not see.
        """
        ...

    def run_source(self, run_id: int) -> RunSource:
        """Where `toban_cli.follow` reads a run and its output."""
        ...

    def wait_for_site(self) -> None:
        """From now on a site that is away or has no room for a while does not end a command."""
        ...

    def close(self) -> None:
        """Ends the connections."""
        ...


class RunSource(Protocol):
    """One run, and its output. Methods raise TobanError."""

    def read(self) -> Any:
        """The run as it is now; waits for a minute when no server answers."""
        ...

    def has_ended(self) -> bool:
        """Whether the run is known to have ended."""
        ...

    def await_end(self) -> None:
        """Returns when the run has ended, or when it has to be read again."""
        ...

    def output(self, request: Any, on_outage: Callable[[str], None]) -> Iterator[Any]:
        """ReadLogResponses for a ReadLogRequest from its `after` on, as they arrive, until the output of the ended run is complete.

        `on_outage` gets the reason while the output cannot be read. Raises StreamEndedError for what ended before.
        """
        ...

    def close(self) -> None:
        """Ends what is under way."""
        ...


class StreamEndedError(TobanError):
    """A stream has ended before the output was complete: the site stops, or the stream has reached its time limit."""
