"""Server-sent events of the site."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toban_cli.rest.http import API, Pairs
from toban_cli.rest.problems import read_json
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from toban_cli.rest.http import SiteClient

# The site sends a comment at least every 10 s.
SILENCE_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; `data` is its JSON."""

    name: str
    data: dict[str, Any]


def server_events(
    client: SiteClient, path: str, query: Pairs | None = None, *, waits: bool = False
) -> Iterator[ServerEvent]:
    """The events of a stream until the site ends it; its last one tells whether it was complete. A `waits` reader waits for it to begin.

    Raises what the answer is an error of, and UNAVAILABLE when it breaks.
    """
    reply, lines = client.http.stream(f"{API}{path}", query=query, timeout=SILENCE_SECONDS, waits=waits)
    if reply.status != 200 or reply.kind != "text/event-stream":
        read_json(reply, client.site)
        raise TobanError(ErrorCode.CONFIG_INVALID, f"{client.site.url} answered without a stream; check the address")
    name, data = "", ""
    for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r")
        word, _, value = text.partition(": ")
        if word == "event":
            name = value
        elif word == "data":
            data += value
        elif not text and name:
            yield ServerEvent(name, json.loads(data or "{}"))
            name, data = "", ""
