"""Flows of the SDK against the site of a command. Their errors become those that the same call over gRPC raises."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from toban.client.answers import BUSY
from toban.client.flow import Flow, RetryBudget
from toban.client.sync_transport import SyncTransport
from toban.client.target import is_token
from toban.errors import TobanError as SiteError
from toban.errors import error_kind
from toban_cli.ports import OUTAGE_SECONDS, Client
from toban_cli.rest.site import Site
from toban_domain.errors import ErrorCode, TobanError

T = TypeVar("T")
# A command that waits for nothing waits this long for a site that allows no request now, seconds.
SHORT_SECONDS = 3.0
_TOO_MANY = 429
# Before the path of a mistake in a manifest: its number.
_MANIFEST = "manifests."


class SiteConnection:
    """Raises CONFIG_INVALID for a token or a CA file that cannot be used. `run` and `iterate` raise what the site answers, UNAVAILABLE,
    DEADLINE_EXCEEDED, and CONFIG_INVALID for a certificate that is not trusted and for an answer that is not from Toban.
    """

    def __init__(self, site: Site) -> None:
        if site.token and not is_token(site.token):
            message = f"the token of {site.name or site.url} is no API token; {site.renewal}"
            raise TobanError(ErrorCode.CONFIG_INVALID, message)
        self.site = site
        self.waits = False
        """Whether requests wait for a site that is away."""
        with self._errors():
            self._transport = SyncTransport(site)

    def budget(self) -> RetryBudget:
        """That of one request."""
        return RetryBudget(seconds=OUTAGE_SECONDS if self.waits else SHORT_SECONDS, for_outage=self.waits)

    def run(self, flow: Flow[T], *, has_password: bool = False) -> T:
        """The answer of a flow. What the site refuses of a `has_password` one is the password, and not the token."""
        with self._errors(has_password=has_password):
            return self._transport.run(flow)

    def iterate(self, flow: Flow[None]) -> Iterator[Any]:
        """The items of a flow, as they come."""
        with self._errors():
            yield from self._transport.iterate(flow)

    def close(self) -> None:
        """Ends the connections; the next request opens another."""
        self._transport.close()

    @contextmanager
    def _errors(self, *, has_password: bool = False) -> Iterator[None]:
        try:
            yield
        except SiteError as error:
            raise domain_error(error, self.site, has_password=has_password) from None


class SiteClient(Client, Protocol):
    """A client over REST, with the connection to its site."""

    connection: SiteConnection


def name_sources(error: TobanError, sources: Sequence[str]) -> TobanError:
    """The same error with the files of manifests in place of their numbers in the request."""
    listed = error.detail.get("errors")
    for one in listed if isinstance(listed, list) else []:
        number, dot, path = one.get("path", "").removeprefix(_MANIFEST).partition(".")
        if one.get("path", "").startswith(_MANIFEST) and number.isdigit() and int(number) < len(sources):
            one.update(source=sources[int(number)], path=path if dot else "")
    message = error.message
    for number, source in reversed(list(enumerate(sources))):
        message = message.replace(f"{_MANIFEST}{number}", source)
    return TobanError(error.code, message, detail=error.detail)


def domain_error(error: SiteError, site: Site, *, has_password: bool) -> TobanError:
    """An error of the SDK as one of the command line."""
    known = error.code in set(ErrorCode)
    code = ErrorCode(error.code if known else error_kind(error.status or 500, "")[0])
    message, detail = str(error.args[0]), dict(error.context)
    if error.is_foreign:
        message = f"{site.url}: {message}"
        code = code if error.status in BUSY else ErrorCode.CONFIG_INVALID
    if error.mistakes:
        detail["errors"] = [{"path": one.where, "message": one.message} for one in error.mistakes]
    if code is ErrorCode.UNAUTHENTICATED and not has_password:
        message = f"{message.partition(';')[0]}; {site.renewal}"
    if error.status == _TOO_MANY and error.retry_after is not None and "retry_after_seconds" not in detail:
        detail["retry_after_seconds"] = math.ceil(error.retry_after)
        message += f" (try again after {math.ceil(error.retry_after)} s)"
    return TobanError(code, message, detail=detail)
