"""What commands need of the cluster; `toban_cli.direct` has it over mTLS, `toban_cli.rest.client` over REST."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

CALL_SECONDS = 10.0
# Characters of a reason that servers keep.
MAX_REASON = 1000


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

    def wait_for_site(self) -> None:
        """From now on a site that is away or has no room for a while does not end a command."""
        ...

    def close(self) -> None:
        """Ends the connections."""
        ...
