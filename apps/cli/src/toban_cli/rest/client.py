"""The calls of the commands over REST: the interface of `toban_cli.ports.Client`, with the same messages and the same errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass

from toban.client.flow import Request, ask
from toban_cli.ports import CALL_SECONDS
from toban_cli.proto_json import from_plain, given
from toban_cli.rest.connection import SiteConnection, name_sources
from toban_cli.rest.routes import Route, route_for
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import tracing

if TYPE_CHECKING:
    from toban_cli.direct import DirectClient
    from toban_cli.ports import RunSource
    from toban_cli.rest.site import Site

# There it is the present password that is wrong.
_PASSWORD = "/account/password"


class RestClient:
    """`direct` makes a client over gRPC for what has no route, where the configuration names coordinators; None = there is none."""

    def __init__(self, site: Site, direct: Callable[[], DirectClient] | None = None) -> None:
        self.site = site
        self.token = site.token
        self.connection = SiteConnection(site)
        self._open_direct = direct
        self._direct: DirectClient | None = None
        self.can_describe = direct is not None
        """LogReader.Describe is at hand."""

    def wait_for_site(self) -> None:
        """From now on requests wait for a site that is away or has no room, as a command that waits for a run does."""
        self.connection.waits = True

    def call(self, method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
        """`timeout` is the longest silence, seconds."""
        fields = given(request)
        route = route_for(method, fields)
        if isinstance(route, str):
            return self.direct(method, route).call(method, request, timeout=timeout)
        try:
            answer = self._ask(route, fields, timeout)
        except TobanError as error:
            sources = [one.get("source", "") for one in fields.get("manifests", [])]
            raise name_sources(error, sources) if sources else error from None
        service, _, name = method.partition(".")
        # A method stands in the file of its request.
        described = request.DESCRIPTOR.file.services_by_name[service].methods_by_name[name]
        return self._read_message(GetMessageClass(described.output_type)(), answer)

    def stream(self, method: str, request: Any) -> Iterator[Any]:
        if method != "LogReader.Read":
            return self.direct(method).stream(method, request)
        from toban_cli.rest.logs import read_lines

        return read_lines(self, request)

    def run_source(self, run_id: int) -> RunSource:
        from toban_cli.rest.logs import SiteSource

        return SiteSource(self, run_id)

    def direct(self, method: str, reason: str = "") -> DirectClient:
        """A client over gRPC for a method without a route. Raises UNIMPLEMENTED where no coordinator is configured."""
        if self._open_direct is None:
            reason = reason or str(route_for(method, {}))
            message = (
                f"this needs `toban --direct` on a machine with the certificate of admin-cli, because {reason}; "
                f"the commands here go to {self.site.url}"
            )
            raise TobanError(ErrorCode.UNIMPLEMENTED, message)
        if self._direct is None:
            self._direct = self._open_direct()
        return self._direct

    def close(self) -> None:
        """Ends the connections."""
        self.connection.close()
        if self._direct is not None:
            self._direct.close()

    def _ask(self, route: Route, fields: dict[str, Any], timeout: float) -> dict[str, Any]:
        sent = route.send(fields)
        request = Request(
            method=route.verb,
            path=sent.path,
            query=tuple(sent.query),
            body=sent.encoded(),
            headers={"Accept": "application/json", **sent.headers, **dict(tracing.headers())},
            timeout=timeout,
            repeatable=route.repeatable,
        )
        flow = ask(request, self.connection.budget())
        answer = self.connection.run(flow, has_password=sent.path.endswith(_PASSWORD))
        return {route.inside: [answer]} if route.inside else answer

    def _read_message(self, message: Any, answer: Any) -> Any:
        """Fills a message with JSON of the site. Raises INTERNAL for JSON of another form."""
        try:
            return from_plain(message, answer)
        except (ValueError, TypeError, AttributeError) as error:
            message = f"the answer of {self.site.url} has an unexpected form ({json.dumps(str(error))}); is its version another one?"
            raise TobanError(ErrorCode.INTERNAL, message) from None
