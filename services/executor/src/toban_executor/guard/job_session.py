"""What the attempt in a slot has said on its socket or by markers, and what it is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

from toban_domain.output_redaction import MASK
from toban_executor.decide.guard_types import JobNote
from toban_executor.decide.job_protocol import (
    ProtocolError,
    Request,
    answer,
    cancel_event,
    parse,
    parse_marker,
    refusal,
)
from toban_executor.decide.models import StartOrder
from toban_executor.guard.job_socket import Connection, JobSocket

# Requests for checkpoints that wait for a coordinator, of one attempt.
MAX_WAITING = 64


class JobSession:
    """One attempt. `send` gets notes for the executor, `redact` masks what the log masks, `redact_secrets` the values of secrets alone.
    `lease_left` gives the seconds that are left of the lease, None for a job that continues without one."""

    def __init__(
        self,
        *,
        order: StartOrder,
        socket: JobSocket,
        send: Callable[[JobNote], None],
        redact: Callable[[str], str],
        redact_secrets: Callable[[str], str],
        now_ns: Callable[[], int],
        lease_left: Callable[[], float | None],
    ) -> None:
        self._key = order.key
        self._earlier = order.checkpoint_json
        self._socket = socket
        self._send = send
        self._redact = redact
        self._redact_secrets = redact_secrets
        self._now_ns = now_ns
        self._lease_left = lease_left
        self._cancelled = False
        # What the job has set, and what a function of it has returned.
        self._output = self._returned = ""
        self.log_ref = ""
        # Set by every request; the reader resets it.
        self.spoke = False
        # Of checkpoints: the number of the last one, the one on its way to PostgreSQL, the one that follows, and who waits for which.
        self._number = 0
        self._sent = 0
        self._next: tuple[int, str] | None = None
        self._waiting: list[tuple[int, Connection]] = []

    @property
    def result_json(self) -> str:
        """The result of the attempt, "" = none."""
        return self._output or self._returned

    def serve(self, connection: Connection, line: bytes) -> None:
        """Carry out one request and answer it."""
        try:
            request = parse(line, self._now())
        except ProtocolError as error:
            self.spoke = True
            self._socket.send(connection, refusal(str(error), cancelled=self._cancelled))
            return
        # Programs of the executor ask for the lease, whatever becomes of what they have started.
        self.spoke = self.spoke or request.op != "lease"
        if request.op == "checkpoint" and request.value is not None:
            self._waiting = [one for one in self._waiting if one[1].sock.fileno() >= 0]
            if len(self._waiting) >= MAX_WAITING:
                self._socket.send(
                    connection, refusal("too many checkpoints wait; read the responses", cancelled=self._cancelled)
                )
                return
            self._waiting.append((self._put_checkpoint(request.value), connection))
            return
        more: dict[str, object] = {}
        if request.op == "checkpoint":
            more["value"] = json.loads(self._earlier) if self._earlier else None
        elif request.op == "lease":
            more["lease_seconds"] = self._lease_left()
        self._apply(request)
        self._socket.send(connection, answer(cancelled=self._cancelled, **more))

    def read_marker(self, line: bytes) -> None:
        """A line of stdout that may be a marker."""
        request = parse_marker(line, self._now())
        if request is not None:
            self.spoke = True
            self._apply(request)

    def cancel(self, reason: str) -> None:
        """The run is cancelled: the job learns it with every answer, and at once where it listens."""
        self._cancelled = True
        self._socket.broadcast(cancel_event(reason))

    def checkpoint_stored(self, number: int, problem: str) -> None:
        """Answer those who wait for this checkpoint or an earlier one, and send the next."""
        line = refusal(problem, cancelled=self._cancelled) if problem else answer(cancelled=self._cancelled)
        for waiting, connection in self._waiting:
            if waiting <= number:
                self._socket.send(connection, line)
        self._waiting = [(waiting, connection) for waiting, connection in self._waiting if waiting > number]
        self._sent = 0
        if self._next is not None:
            (number, text), self._next = self._next, None
            self._send_checkpoint(number, text)

    def finish(self) -> None:
        """The tree is empty: what it has sent before counts; no process waits for a response."""
        self._socket.finish(self.serve)

    def _apply(self, request: Request) -> None:
        if request.progress is not None:
            fields = request.progress.to_json()
            fields["summary"] = self._redact(fields["summary"])
            self._send(JobNote(key=self._key, kind="progress", text=json.dumps(fields, separators=(",", ":"))))
        elif request.op == "output" and request.value is not None:
            text = _json_or_mask(self._redact(request.value))
            if request.returned:
                self._returned = text
            else:
                self._output = text
        elif request.op == "log_ref" and request.value is not None:
            self.log_ref = self._redact(request.value)

    def _put_checkpoint(self, text: str) -> int:
        # It is stored: a later attempt would find the value of a secret there.
        text = _json_or_mask(self._redact_secrets(text))
        self._earlier = text
        self._number += 1
        if self._sent:
            # The last one counts.
            self._next = self._number, text
        else:
            self._send_checkpoint(self._number, text)
        return self._number

    def _send_checkpoint(self, number: int, text: str) -> None:
        self._sent = number
        self._send(JobNote(key=self._key, kind="checkpoint", text=text, number=number))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._now_ns() / 1e9, UTC)


def _json_or_mask(text: str) -> str:
    """A number that was masked leaves no JSON: all of the value is masked then."""
    try:
        json.loads(text)
    except ValueError:
        return json.dumps(MASK.decode())
    return text
