"""The client of a command: over mTLS or REST, as the environment has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toban_cli import report
from toban_cli.cluster_config import read_settings
from toban_cli.ports import CALL_SECONDS
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.direct import DirectClient
    from toban_cli.ports import Client
    from toban_cli.rest.site import Site

# The largest page of the servers.
PAGE = 500


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


def call(method: str, request: Any, *, timeout: float = CALL_SECONDS) -> Any:
    """The answer of one method such as JobReader.GetJob, by a client of its own. Raises as Client.call."""
    with connect() as client:
        return client.call(method, request, timeout=timeout)


def _direct() -> DirectClient:
    from toban_cli.direct import DirectClient

    settings = read_settings(os.environ)
    if missing := missing_grpc():
        raise missing
    # Read when gRPC is imported: without it a fork of this process would log warnings.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return DirectClient(settings)


def missing_grpc() -> TobanError | None:
    """Why coordinators cannot be called where the package was installed without gRPC; None where it is there."""
    from importlib.util import find_spec

    if find_spec("grpc") is not None:
        return None
    message = "calls of coordinators need gRPC, which is not installed; pip install 'toban[grpc]', or go to a site with `toban login URL`"
    return TobanError(ErrorCode.UNIMPLEMENTED, message)


def _over_rest(site: Site) -> Client:
    from toban_cli.rest.client import RestClient
    from toban_cli.rest.site import LOCAL

    # The coordinators of the local stack are at hand for what has no route.
    return RestClient(site, _direct if site.name == LOCAL else None)


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
