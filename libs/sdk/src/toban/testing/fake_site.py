"""The part of a site that starts runs and stores events, in memory. The clients send their real requests to it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn
from urllib.parse import unquote

from toban.client.flow import Now, Pause, Reply, Request
from toban.client.models import TERMINAL_STATES
from toban.client.target import Target
from toban.client.transport import request_body, request_headers
from toban.errors import InvalidRequestError
from toban.events import checked

TARGET = Target(url="http://127.0.0.1:1", token="toban_pat_in-memory")
"""What a client needs to begin; nothing is sent there."""

_Row = dict[str, Any]
_KEY = "Idempotency-Key"
_KEPT = ("scheduled_for", "priority", "scope", "scope_id")
# As the site has them for a start.
_MAX_PRIORITY = (1 << 31) - 1
_SCOPES = ("system", "account", "user")
_MAX_SCOPE_ID = _MAX_KEY = 200
_HEADER_KEY = re.compile(r"[!-~]{1,180}")
_MAX_RUNS = 5000
_LATE, _AHEAD = timedelta(seconds=60), timedelta(days=366)
# Filters of lists; each compares the field of its name.
_RUN_FILTERS = frozenset({"job", "state", "idempotency_key"})
_EVENT_FILTERS = frozenset({"event_type"})


class FakeSite:
    """Runs of the named jobs, and events. A run stays PENDING until `end_runs` or a cancel ends it; no event starts a run."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self._ends: dict[str, _Row] = {job: {} for job in jobs}
        self._runs: list[_Row] = []
        self._events: list[_Row] = []

    def end_runs(self, job: str, **end: Any) -> None:
        """Ends the runs of a job that have not ended, and each one that is started later. Raises ValueError for a job that is not there."""
        if job not in self._ends:
            raise ValueError(
                f"there is no job {job!r}, only: {', '.join(self._ends) or 'none'}; name it when you make the client"
            )
        self._ends[job] = end
        for run in self._runs:
            if run["job"] == job and run["state"] not in TERMINAL_STATES:
                _end(run, **end)

    def answer(self, request: Request) -> Reply:
        """The answer to a request. Raises NotImplementedError for one that this site does not have, and ValueError for what cannot be sent."""
        request_headers(TARGET, request)
        body: _Row = json.loads(request_body(request) or b"{}")
        try:
            return self._route(request, body)
        except InvalidRequestError as error:
            return _problem(413 if error.code == "PAYLOAD_TOO_LARGE" else 400, error.code, error.args[0])

    def perform(self, effect: Request | Pause | Now) -> Reply | float:
        """What a transport does. A pause would wait for what never comes, so it raises NotImplementedError."""
        if isinstance(effect, Pause):
            raise NotImplementedError(_lacks("anything to wait for"))
        return time.monotonic() if isinstance(effect, Now) else self.answer(effect)

    def refuse_stream(self, request: Request) -> NoReturn:
        """Raises NotImplementedError: the stream of a run would be without an end, and there is no output."""
        match request.path.split("/")[1:]:
            case ["runs", _, "stream"]:
                raise NotImplementedError(
                    "the run has not ended, and nothing runs in memory; call end_runs(JOB) of the client before your code waits"
                )
        raise NotImplementedError(_lacks(f"the output of runs ({request.path})"))

    def _route(self, request: Request, body: _Row) -> Reply:
        match request.method, [unquote(part) for part in request.path.split("/")[1:]]:
            case "POST", ["jobs", job, "runs"]:
                key = request.headers[_KEY]
                if not _HEADER_KEY.fullmatch(key):
                    raise _invalid("an idempotency_key has 1 to 180 printable characters of ASCII, without spaces")
                return self._start(job, body, key)
            case "POST", ["runs"]:
                return self._start_many(body["runs"])
            case "GET", ["runs"]:
                due = [run for run in self._runs if ("ahead", "true") in request.query or _is_due(run)]
                return _list("runs", due, _RUN_FILTERS, request)
            case "GET", ["runs", number]:
                return self._with_run(number, lambda run: _reply(200, run))
            case "POST", ["runs", number, "cancel"]:
                return self._with_run(number, _cancel)
            case "POST", ["events"]:
                return self._emit(body, request.headers.get(_KEY, ""))
            case "GET", ["events"]:
                return _list("events", self._events, _EVENT_FILTERS, request)
        raise NotImplementedError(_lacks(f"{request.method} {request.path}"))

    def _start(self, job: str, body: _Row, key: str) -> Reply:
        if job not in self._ends:
            return _problem(404, "JOB_NOT_FOUND", f"there is no job {job!r}; name it when you make the client")
        payload = body["payload"]
        # Payloads and events have the same limits.
        checked("run", payload, "")
        _check_start(body, key)
        for run in self._runs:
            if (run["job"], run["idempotency_key"]) == (job, key):
                if run["payload"] != payload:
                    return _problem(409, "CONFLICT", f"the key {key!r} has a run of another payload; use another key")
                return _reply(200, {"run_id": run["id"], "created": False})
        _check_time(body.get("scheduled_for"))
        run = {
            "id": len(self._runs) + 1,
            "job": job,
            "state": "PENDING",
            "origin": "demand",
            "payload": payload,
            "idempotency_key": key,
            "created_at": _now(),
            **{name: body[name] for name in _KEPT if name in body},
        }
        self._runs.append(run)
        if self._ends[job]:
            _end(run, **self._ends[job])
        return _reply(201, {"run_id": run["id"], "created": True})

    def _start_many(self, wanted: list[_Row]) -> Reply:
        if not 1 <= len(wanted) <= _MAX_RUNS:
            raise _invalid(f"there are {len(wanted)} runs; start 1 to {_MAX_RUNS} at once")
        made = len(self._runs)
        found = []
        for one in wanted:
            reply = self._start(one["job"], {"payload": {}, **one}, one["idempotency_key"])
            if reply.status >= 400:
                del self._runs[made:]
                return reply
            found.append(json.loads(reply.body))
        return _reply(201, {"runs": found})

    def _with_run(self, number: str, use: Callable[[_Row], Reply]) -> Reply:
        found = [run for run in self._runs if str(run["id"]) == number]
        return use(found[0]) if found else _problem(404, "RUN_NOT_FOUND", f"there is no run {number}")

    def _emit(self, body: _Row, key: str) -> Reply:
        checked(body["event_type"], body["payload"], key)
        same = [
            one for one in self._events if key and (one["event_type"], one["dedupe_key"]) == (body["event_type"], key)
        ]
        event = {"id": len(self._events) + 1, **body, "dedupe_key": key, "created_at": _now()}
        self._events.append(event)
        return _reply(201, {"event_id": event["id"], "duplicate": bool(same)})


def _check_start(body: _Row, key: str) -> None:
    """Raises InvalidRequestError for what the site refuses, whatever the job is."""
    if len(key) > _MAX_KEY or "\0" in key:
        raise _invalid(f"idempotency_key has more than {_MAX_KEY} characters or a NUL")
    if abs(priority := body.get("priority", 0)) > _MAX_PRIORITY:
        raise _invalid(f"priority is {priority}; use -{_MAX_PRIORITY} to {_MAX_PRIORITY}")
    if (scope := body.get("scope") or _SCOPES[0]) not in _SCOPES:
        raise _invalid(f"scope is {scope[:60]!r}; use one of {', '.join(_SCOPES)}")
    if len(scope_id := body.get("scope_id", "")) > _MAX_SCOPE_ID or "\0" in scope_id:
        raise _invalid(f"scope_id has more than {_MAX_SCOPE_ID} characters or a NUL")


def _check_time(scheduled_for: str | None) -> None:
    """Raises InvalidRequestError for a time for which the site makes no run."""
    ahead = datetime.fromisoformat(scheduled_for) - datetime.now(UTC) if scheduled_for else timedelta()
    if ahead < -_LATE:
        raise _invalid(f"scheduled_for {scheduled_for} is in the past; leave it out to start now")
    if ahead > _AHEAD:
        raise _invalid(f"scheduled_for {scheduled_for} is more than {_AHEAD.days} days ahead; a schedule has `start`")


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="INVALID_ARGUMENT")


def _end(run: _Row, state: str, result: Any, error_summary: str) -> None:
    run |= {"state": state, "attempt": 1, "finished_at": _now(), "result": result, "error_summary": error_summary}


def _is_due(run: _Row) -> bool:
    given = run.get("scheduled_for")
    return given is None or datetime.fromisoformat(given) <= datetime.now(UTC)


def _cancel(run: _Row) -> Reply:
    if run["state"] in TERMINAL_STATES:
        return _problem(409, "RESOURCE_INVALID_STATE", f"run {run['id']} has ended: {run['state']}")
    # As of a run that was sent to no executor: events of the run have the reason of the person.
    run |= {"state": "CANCELED", "finished_at": _now(), "reason": "canceled"}
    return _reply(200, {"run": run})


def _list(name: str, rows: list[_Row], filters: Collection[str], request: Request) -> Reply:
    """All that the filters leave, newest first, in one page."""
    given: dict[str, list[str]] = {}
    for key, value in request.query:
        given.setdefault(key, []).append(value)
    for known in ("limit", "ahead"):
        given.pop(known, None)
    if unknown := sorted(set(given) - set(filters)):
        raise NotImplementedError(_lacks(f"the filter {', '.join(unknown)} of {name}"))
    found = [row for row in reversed(rows) if all(row[key] in values for key, values in given.items())]
    return _reply(200, {name: found, "next_cursor": ""})


def _reply(status: int, document: Any) -> Reply:
    return Reply(status=status, headers={"content-type": "application/json"}, body=json.dumps(document).encode())


def _problem(status: int, code: str, detail: str) -> Reply:
    return _reply(status, {"code": code, "detail": detail})


def _lacks(what: str) -> str:
    return f"a client in memory does not have {what}; it starts, reads, lists and cancels runs, and emits and lists events: use a stack"


def _now() -> str:
    return datetime.now(UTC).isoformat()
