"""The calls of the REST interface as flows, one for each method of the clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

from toban.client.flow import CALL_SECONDS, Flow, Item, Pairs, Request, exchange
from toban.client.models import AppliedManifest, Emitted, Run, StartedRun

T = TypeVar("T")
Json = Mapping[str, Any]
_PAGE = 100
# How long a call of a client may wait in all, unless it is given.
RETRY_SECONDS = 30.0


class Calls:
    """Makes flows. `retry_seconds` is how long a call may wait in all for a site that is away or has no room."""

    def __init__(self, retry_seconds: float) -> None:
        self.retry_seconds = retry_seconds

    def get(
        self, read: Callable[[Json], T], *path: str | int, query: Pairs = (), seconds: float = float("inf")
    ) -> Flow[T]:
        """An object. `seconds` bounds each try, and the waits between them."""
        timeout = min(CALL_SECONDS, seconds)
        request = Request(method="GET", path=at(*path), query=query, repeatable=True, timeout=timeout)
        found = yield from exchange(request, min(self.retry_seconds, seconds))
        return read(found)

    def post(
        self,
        read: Callable[[Json], T],
        *path: str | int,
        body: Json,
        repeatable: bool = False,
        timeout: float = CALL_SECONDS,
    ) -> Flow[T]:
        """A change. `timeout` is the longest silence, seconds."""
        request = Request(method="POST", path=at(*path), body=body, repeatable=repeatable, timeout=timeout)
        return self._call(read, request)

    def pages(self, read: Callable[[Json], Sequence[T]], *path: str | int, query: Pairs, limit: int) -> Flow[None]:
        """The objects of a list, as items, page by page; 0 = all of them."""
        cursor, left = "", limit
        while True:
            size = min(left, _PAGE) if limit else _PAGE
            place: Pairs = (("limit", str(size)), *((("cursor", cursor),) if cursor else ()))
            request = Request(method="GET", path=at(*path), query=(*query, *place), repeatable=True)
            found = yield from exchange(request, self.retry_seconds)
            for one in read(found):
                yield Item(one)
                left -= 1
                if limit and not left:
                    return
            cursor = str(found.get("next_cursor", ""))
            if not cursor:
                return

    def start(self, job: str, fields: Json, idempotency_key: str) -> Flow[StartedRun]:
        """A run, once for its key; without one a random key makes repeating this request safe."""
        key = idempotency_key or _random_key()
        request = Request(
            method="POST",
            path=at("jobs", job, "runs"),
            body=without_none(fields),
            headers={"Idempotency-Key": key},
            repeatable=True,
        )
        return self._call(StartedRun.from_json, request)

    def start_many(self, runs: Iterable[Json]) -> Flow[list[StartedRun]]:
        """Runs, all or none; each once for its key, and a random key where there is none."""
        keyed = [{**without_none(one), "idempotency_key": one.get("idempotency_key") or _random_key()} for one in runs]
        request = Request(method="POST", path=at("runs"), body={"runs": keyed}, repeatable=True)
        return self._call(lambda found: [StartedRun.from_json(one) for one in found["runs"]], request)

    def emit(self, event_type: str, payload: Json | None, dedupe_key: str) -> Flow[Emitted]:
        """An event, once for its key. Without one it is sent once only: the key is part of the event."""
        request = Request(
            method="POST",
            path=at("events"),
            body={"event_type": event_type, "payload": dict(payload or {})},
            headers={"Idempotency-Key": dedupe_key} if dedupe_key else {},
            repeatable=bool(dedupe_key),
        )
        return self._call(Emitted.from_json, request)

    def apply(self, manifests: Json | Iterable[Json], dry_run: bool) -> Flow[list[AppliedManifest]]:
        """All manifests or none. Not repeated after a lost answer: it could undo what another client has applied meanwhile."""
        given = (manifests,) if isinstance(manifests, Mapping) else manifests
        body = {"manifests": [dict(one) for one in given], "dry_run": dry_run}
        return self.post(_read_applied, "apply", body=body, repeatable=dry_run)

    def any(self, method: str, path: str, body: Json | None, query: Pairs) -> Flow[Any]:
        """A call of a route that has no method here; its JSON."""
        request = Request(method=method, path=path, body=body, query=query, repeatable=method == "GET")
        return self._call(lambda found: found, request)

    def _call(self, read: Callable[[Json], T], request: Request) -> Flow[T]:
        found = yield from exchange(request, self.retry_seconds)
        return read(found)


def at(*parts: str | int) -> str:
    """The path of these parts.

    >>> at("jobs", "a/b", "runs")
    '/jobs/a%2Fb/runs'
    """
    for part in parts:
        # The site would take these for another path.
        if part in ("", ".", ".."):
            raise ValueError(f"{part!r} is no name")
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def pairs(**given: Any) -> Pairs:
    """The parameters of a query that have a value, and are not false; a list gives one each, a mapping KEY=VALUE.

    >>> pairs(job="a", state=["FAILED", "EXPIRED"], label={"team": "ops"}, since=None)
    (('job', 'a'), ('state', 'FAILED'), ('state', 'EXPIRED'), ('label', 'team=ops'))
    """
    return stated_pairs({name: value for name, value in given.items() if value not in ("", False)})


def stated_pairs(given: Mapping[str, Any]) -> Pairs:
    """As `pairs`, with 0, False and empty texts, which may differ from leaving them out. None is left out.

    >>> stated_pairs({"limit": 0, "include_off": False, "job": None})
    (('limit', '0'), ('include_off', 'false'))
    """
    found: list[tuple[str, str]] = []
    for name, value in given.items():
        if isinstance(value, datetime):
            found.append((name, time_text(value)))
        elif isinstance(value, Mapping):
            found += [(name, f"{key}={one}") for key, one in value.items()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            found += [(name, str(one)) for one in value]
        elif value is not None:
            found.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return tuple(found)


def time_text(value: datetime) -> str:
    """RFC 3339. Raises ValueError for a time without a zone: it would mean another moment elsewhere."""
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} has no time zone; use datetime(..., tzinfo=UTC)")
    return value.isoformat()


def without_none(fields: Json) -> dict[str, Any]:
    """The fields that have a value; times as text."""
    return {
        name: time_text(value) if isinstance(value, datetime) else value
        for name, value in fields.items()
        if value is not None
    }


def run_of(found: Json) -> Run:
    """The run of an answer to its change."""
    return Run.from_json(found["run"])


def _random_key() -> str:
    return f"sdk:{uuid.uuid4()}"


def _read_applied(found: Json) -> list[AppliedManifest]:
    return [AppliedManifest.from_json(one) for one in found["applied"]]
