"""The job's end of TOBAN_SOCKET: one JSON line a request, one a response."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from datetime import datetime

T = TypeVar("T")

CANCELLED_EXIT_CODE = 143
"""With which `stop_if_cancelled` ends the program, as a shell reports one that SIGTERM ended."""

_REQUEST_SECONDS = 5.0
_CHECKPOINT_SECONDS = 60.0


class JobError(Exception):
    """Toban did not carry out a request: the value is too large, the run has gone on elsewhere, or the executor did not respond in time."""


class Job:
    """The run that this program belongs to. Thread-safe; use one for each process.

    Without a socket (`path` empty: the program was not started by Toban) every call is without effect, so that the same program runs anywhere.
    What describes the run (`payload`, `run_id`, `attempt`, `slot`, `deadline`, `fence`) is read from the variables `environ` when it is used,
    by default from those of the process; outside of a run it raises LookupError.
    """

    def __init__(self, path: str = "", environ: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._environ = os.environ if environ is None else environ
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._received = b""
        self._cancelled = False
        self._began = time.monotonic()
        # (done, monotonic time) of the first progress that counted.
        self._first: tuple[float, float] | None = None

    @property
    def is_managed(self) -> bool:
        """Whether Toban runs this program."""
        return bool(self._path)

    @cached_property
    def payload(self) -> dict[str, Any]:
        """The parameters of the run, with their types; it is read once. Raises LookupError outside of a run."""
        if path := self._environ.get("TOBAN_PAYLOAD_FILE"):
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib costs milliseconds)
                text = file.read()
        else:
            # Containers have the variable.
            text = self._environ.get("TOBAN_PAYLOAD") or self._variable("TOBAN_PAYLOAD_FILE", str)
        payload: dict[str, Any] = json.loads(text or "{}")
        return payload

    @property
    def run_id(self) -> int:
        """The number of the run. Raises LookupError outside of a run."""
        return self._variable("TOBAN_RUN_ID", int)

    @property
    def attempt(self) -> int:
        """The number of this attempt of the run, from 1. Raises LookupError outside of a run."""
        return self._variable("TOBAN_ATTEMPT", int)

    @property
    def slot(self) -> datetime | None:
        """The time of the schedule that the run is for, with a zone; None for a run on demand. Raises LookupError outside of a run."""
        return self._variable("TOBAN_SLOT", _time)

    @property
    def deadline(self) -> datetime | None:
        """When the timeout ends this attempt, with a zone; None without one. Raises LookupError outside of a run."""
        return self._variable("TOBAN_DEADLINE", _time)

    @property
    def fence(self) -> int:
        """The fencing token of this attempt, for `toban.fencing`. Raises LookupError outside of a run."""
        return self._variable("TOBAN_FENCE", int)

    def progress(
        self,
        percentage: float | None = None,
        summary: str = "",
        *,
        done: int | None = None,
        total: int | None = None,
        eta_seconds: float | None = None,
    ) -> None:
        """Report how far the job is: a percentage (0 to 100), or `done` of `total` units, from whose rate the end is estimated.

        Raises JobError for numbers that cannot be.
        """
        if eta_seconds is None and done is not None and total:
            eta_seconds = self._estimate(done, total)
        fields: dict[str, Any] = {
            "percentage": percentage,
            "summary": summary,
            "done": done,
            "total": total,
            "eta_seconds": eta_seconds,
        }
        self._request("progress", **{name: value for name, value in fields.items() if value not in (None, "")})

    def heartbeat(self) -> None:
        """Show that the job is alive; needed where its step has `heartbeat_seconds`. Every other request counts as well."""
        self._request("heartbeat")

    def cancelled(self) -> bool:
        """Whether the run is being cancelled: end soon, SIGTERM follows after the grace of the job's definition."""
        if not self._cancelled:
            self._request("cancelled")
        return self._cancelled

    def stop_if_cancelled(self) -> None:
        """End this program (SystemExit with code 143) when the run is being cancelled."""
        if self.cancelled():
            sys.exit(CANCELLED_EXIT_CODE)

    def checkpoint(self) -> Any:
        """What an earlier attempt of this run, or this one, has saved last; None when there is nothing."""
        return self._request("checkpoint").get("value")

    def save_checkpoint(self, value: Any, *, timeout: float = _CHECKPOINT_SECONDS) -> None:
        """Keep `value` (JSON, at most 32 KiB) for the next attempt. It is committed when this returns.

        Raises JobError when it was not in `timeout` seconds, or when the run has gone on without this attempt: then stop.
        """
        self._request("checkpoint", timeout=timeout, value=value)

    def output(self, value: Any) -> None:
        """Set the result of the run (JSON, at most 32 KiB); the last one counts. Raises JobError when it is too large."""
        self._request("output", value=value)

    def log_ref(self, uri: str) -> None:
        """State where a log of the job's own is kept."""
        self._request("log_ref", value=uri)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        with self._lock:
            self._disconnect()

    def _variable(self, name: str, read: Callable[[str], T]) -> T:
        text = self._environ.get(name)
        if text is None:
            raise LookupError(f"{name} is not set: Toban does not run this program; in tests use toban.testing.FakeJob")
        try:
            return read(text)
        except ValueError:
            raise ValueError(f"{name} is {text!r}, which Toban does not set; leave the variable as it was") from None

    def _estimate(self, done: int, total: int) -> float | None:
        now = time.monotonic()
        if self._first is None:
            self._first = done, now
            return None
        since, at = self._first
        return (now - at) / (done - since) * max(0, total - done) if done > since and now > at else None

    def _request(self, op: str, *, timeout: float = _REQUEST_SECONDS, **fields: Any) -> dict[str, Any]:
        if not self._path:
            return {}
        try:
            line = json.dumps({"op": op, **fields}, allow_nan=False).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise JobError(f"{op}: cannot be written as JSON: {error}") from None
        with self._lock:
            try:
                response = self._exchange(line, time.monotonic() + timeout)
            except OSError as error:
                # What was not read would be taken for the response to the next request.
                self._disconnect()
                raise JobError(f"{op}: {error or 'no response in time'}") from error
        if not response.get("ok"):
            raise JobError(f"{op}: {response.get('error', 'refused')}")
        return response

    def _exchange(self, line: bytes, until: float) -> dict[str, Any]:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_REQUEST_SECONDS)
            self._socket.connect(self._path)
        self._socket.settimeout(max(0.001, until - time.monotonic()))
        self._socket.sendall(line)
        while True:
            response = self._read(self._socket, until)
            self._cancelled = self._cancelled or response.get("event") == "cancel" or bool(response.get("cancelled"))
            if "event" not in response:
                return response

    def _read(self, sock: socket.socket, until: float) -> dict[str, Any]:
        while b"\n" not in self._received:
            sock.settimeout(max(0.001, until - time.monotonic()))
            data = sock.recv(65536)
            if not data:
                raise ConnectionError("the executor has closed the connection")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        response: dict[str, Any] = json.loads(line)
        return response

    def _disconnect(self) -> None:
        self._received = b""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _time(text: str) -> datetime | None:
    # Most jobs need no times.
    from datetime import datetime

    return datetime.fromisoformat(text) if text else None


in_place: list[Job] = []
"""Jobs that `toban.testing` has put in the place of the one of this process; the last one counts."""


def current_job() -> Job:
    """The run that this process belongs to, by TOBAN_SOCKET."""
    return in_place[-1] if in_place else _job_of_process()


@cache
def _job_of_process() -> Job:
    return Job(os.environ.get("TOBAN_SOCKET", ""))


# A child that was forked makes a connection of its own: responses on a shared one would reach either process.
if hasattr(os, "register_at_fork"):  # A client also works where processes do not fork.
    os.register_at_fork(after_in_child=_job_of_process.cache_clear)
