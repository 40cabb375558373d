"""The output of a run: as text, or one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal

from flask import Response
from pydantic import AwareDatetime, Field

from toban_admin_web.decide.api_models import Run
from toban_admin_web.decide.log_lines import LogPart
from toban_admin_web.decide.request_input import MAX_ID, Input
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.stream_response import stream_response
from toban_admin_web.views.view_context import context, read, read_ticket
from toban_domain.errors import TobanError

READ_SECONDS = 600.0
TEXT, LINES = "text/plain; charset=utf-8", "application/x-ndjson"


class LogQuery(Input):
    """Which lines. All parts must hold."""

    format: Literal["text", "jsonl"] = Field(
        "text",
        description='text: as the job wrote them; jsonl: an object a line, at the end {"end": true}, or {"error", "code"}.',
    )
    token: str = Field("", pattern=r"^[0-9]{0,19}$", description="Only the attempt with this token.")
    from_seq: int = Field(0, ge=0, le=MAX_ID, description="From this line of each attempt on; they count from 1.")
    to_seq: int = Field(0, ge=0, le=MAX_ID, description="To this line; 0 = to the end.")
    head: int = Field(0, ge=0, le=1_000_000, description="Only the first lines; 0 = all. Not with tail.")
    tail: int = Field(0, ge=0, le=1_000_000, description="Only the last lines; 0 = all.")
    stream: list[Literal["stdout", "stderr", "system"]] = Field(default_factory=list)
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    level: str = Field("", max_length=20, description="At least this level: trace, debug, info, warning, error, fatal.")
    grep: str = Field("", max_length=1000, description="Lines that contain this text.")
    regex: bool = Field(False, description="`grep` is an expression of RE2.")

    def request_fields(self) -> dict[str, Any]:
        """As the fields of ReadLogRequest."""
        return {
            **self.model_dump(exclude={"format", "token", "stream"}),
            "token": int(self.token or 0),
            "streams": self.stream,
        }


def _logs(call: Call) -> Response:
    run_id = call.path["id"]
    ticket = read_ticket(run_id)
    write, kind = (_text, TEXT) if call.query.format == "text" else (_lines, LINES)

    def body() -> Iterator[bytes]:
        parts = iter(context().logs.select(run_id, ticket, call.query.request_fields(), seconds=READ_SECONDS))
        # The first part is read now, while its error can still be the status.
        first = next(parts, None)
        if first is None or not first.lines:
            # A run without such lines, or none of that number: then this raises.
            read("JobReader.GetRun", Run, id=run_id)
        return write(chain([] if first is None else [first], parts))

    return stream_response(body, kind)


def _text(parts: Iterable[LogPart]) -> Iterator[bytes]:
    try:
        for part in parts:
            for line in part.lines:
                yield line.text.encode() + (b"" if line.partial else b"\n")
    except TobanError as error:
        yield f"\n[toban] the log ends here: {error.message}\n".encode()


def _lines(parts: Iterable[LogPart]) -> Iterator[bytes]:
    try:
        for part in parts:
            for line in part.lines:
                one = {
                    "token": str(line.token),
                    "seq": line.seq,
                    "at": line.at.isoformat() if line.at else None,
                    "stream": line.stream,
                    "text": line.text,
                    "partial": line.partial,
                    "level": line.level or None,
                }
                yield json.dumps(one, ensure_ascii=False).encode() + b"\n"
        # A connection that breaks between two chunks looks like an end to many readers.
        yield b'{"end": true}\n'
    except TobanError as error:
        yield json.dumps({"error": error.message, "code": error.code.value}, ensure_ascii=False).encode() + b"\n"


ENDPOINTS = (
    Endpoint(
        route="GET /runs/{id}/logs",
        summary="The output of a run.",
        query=LogQuery,
        answer=None,
        content_types=("text/plain", LINES),
        handle=_logs,
    ),
)
