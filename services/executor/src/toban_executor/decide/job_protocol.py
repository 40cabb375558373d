"""What a job says on TOBAN_SOCKET: one JSON object a line, each answered by one line (docs/jobs.md).

    {"op": "progress", "percentage": 40, "summary": "half way", "done": 4, "total": 10, "eta_seconds": 90}
    {"op": "heartbeat"}   {"op": "cancelled"}   {"op": "lease"}   {"op": "checkpoint"}
    {"op": "checkpoint", "value": …}   {"op": "output", "value": …}   {"op": "log_ref", "value": "s3://bucket/key"}
    {"op": "output", "value": …, "returned": true}

Values are JSON of at most 32 KiB. Markers on stdout are the short form: ``::heartbeat::``, ``::output {…}::``, ``::log_ref URI::``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple, NoReturn

from toban_domain.errors import TobanError
from toban_domain.payload import check_payload
from toban_domain.progress import MAX_COUNT, MAX_ETA_SECONDS, Progress, clean
from toban_executor.decide import progress

MAX_LINE = 128 * 1024
"""Bytes of one request. A value of 32 KiB may be several times as long while its characters are escaped."""

MAX_LOG_REF = 1024
_OPS = ("progress", "heartbeat", "cancelled", "lease", "checkpoint", "output", "log_ref")
_MARKERS = (b"::heartbeat::", b"::output ", b"::log_ref ")


class ProtocolError(Exception):
    """A request that cannot be carried out; the text says why, for the author of the job."""


class Request(NamedTuple):
    """One request. `value` is canonical JSON (or the URI of a log_ref), None when the request has none. `returned`: an output that the program of
    a step sends for a function, and that counts only when the job sets none itself."""

    op: str
    progress: Progress | None = None
    value: str | None = None
    returned: bool = False


def parse(line: bytes, now: datetime) -> Request:
    """The request in one line. Raises ProtocolError."""
    try:
        body = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"is not JSON: {error}; write one object a line") from None
    if not isinstance(body, dict):
        raise ProtocolError('must be an object, such as {"op": "heartbeat"}')
    op = body.get("op")
    if op not in _OPS:
        raise ProtocolError(f"unknown op {str(op)[:40]!r}; known are {', '.join(_OPS)}")
    if op == "progress":
        return Request(op, progress=_progress(body, now))
    if op in ("output", "log_ref") and "value" not in body:
        raise ProtocolError(f"{op} needs a value")
    if op == "log_ref":
        return Request(op, value=_log_ref(body["value"]))
    value = _json(body["value"]) if "value" in body else None
    return Request(op, value=value, returned=op == "output" and body.get("returned") is True)


def parse_marker(line: bytes, now: datetime) -> Request | None:
    """The request in a line of stdout; None when it is no marker, or not one that can be carried out."""
    if progress.marker(line, 0) is not None:
        # Its content is read from the log; here it is a sign of life.
        return Request("heartbeat")
    whole = line.rstrip(b" \t\r")
    if not (whole.startswith(_MARKERS) and whole.endswith(b"::")):
        return None
    op, _, value = whole[2:-2].partition(b" ")
    try:
        if op == b"log_ref":
            return Request("log_ref", value=_log_ref(value.decode()))
        body = b'{"op":"%s"%s}' % (op, b',"value":' + value if value else b"")
        return parse(body, now)
    except (ProtocolError, UnicodeDecodeError):
        return None


def answer(*, cancelled: bool, **more: object) -> bytes:
    """The answer to a request that was carried out."""
    return _line({"ok": True, "cancelled": cancelled, **more})


def refusal(problem: str, *, cancelled: bool) -> bytes:
    """The answer to a request that was not."""
    return _line({"ok": False, "error": problem, "cancelled": cancelled})


def cancel_event(reason: str) -> bytes:
    """What an open connection is sent when the run is cancelled."""
    return _line({"event": "cancel", "reason": reason})


def _line(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def _progress(body: Mapping[str, Any], now: datetime) -> Progress:
    done, total = _number(body, "done", MAX_COUNT), _number(body, "total", MAX_COUNT)
    steps = None
    if done is not None or total is not None:
        if done is None or not total or done > total or done % 1 or total % 1:
            raise ProtocolError("done and total must be whole numbers, done at most total, total above 0")
        steps = (int(done), int(total))
    percentage = _number(body, "percentage", 100)
    if percentage is None:
        if steps is None:
            raise ProtocolError("progress needs a percentage (0 to 100), or done and total")
        percentage = round(100 * steps[0] / steps[1], 2)
    summary, eta = body.get("summary", ""), _number(body, "eta_seconds", MAX_ETA_SECONDS)
    if not isinstance(summary, str):
        raise ProtocolError("summary must be text")
    return Progress(
        percentage=percentage,
        summary=clean(summary),
        at=now,
        steps=steps,
        eta=None if eta is None else now + timedelta(seconds=eta),
    )


def _number(body: Mapping[str, Any], name: str, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ProtocolError(f"{name} must be a number within 0 and {most:g}")
    return float(value)


def _json(value: object) -> str:
    try:
        # In an object, as the limit and the depth of payloads count.
        return check_payload({"v": value})[len('{"v":') : -1]
    except TobanError as error:
        raise ProtocolError(error.message.replace("payload", "value")) from None


def _log_ref(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_LOG_REF or not value.isprintable():
        raise ProtocolError(f"log_ref must be a URI of at most {MAX_LOG_REF} printable characters")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
