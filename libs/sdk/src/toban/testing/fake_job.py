"""A run in memory, in the place of the one that this process belongs to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

from toban.client.calls import time_text
from toban.job import Job, in_place

MAX_VALUE_BYTES = 32 * 1024
MAX_COUNT = 10**15
MAX_ETA_SECONDS = 366 * 86_400


class FakeJob(Job):
    """A run in memory. Within `with FakeJob(payload) as job:` it is what `toban.current_job()` returns, in every thread.

    `reports` has what `progress` was given, `saved` the checkpoints, `outputs` the results, `log_refs` the references and `heartbeats`
    their number. `checkpoint` is what an earlier attempt has saved. The run is being cancelled after `cancel()`, and from check number
    `cancel_at_check` on (calls of `cancelled` and `stop_if_cancelled`; 0 = never). As in a real run, numbers that cannot be, what is no
    JSON, and values over 32 KiB raise JobError. No variable of the process is set, and nothing ends by its deadline.

    >>> import toban
    >>> with FakeJob({"parts": 2}) as job:
    ...     toban.current_job().output({"done": toban.current_job().payload["parts"]})
    >>> job.result
    {'done': 2}
    """

    def __init__(
        self,
        payload: Mapping[str, Any] | None = None,
        *,
        run_id: int = 1,
        attempt: int = 1,
        slot: datetime | None = None,
        deadline: datetime | None = None,
        fence: int = 1,
        checkpoint: Any = None,
        cancel_at_check: int = 0,
    ) -> None:
        environ = {
            "TOBAN_PAYLOAD": json.dumps(dict(payload or {}), allow_nan=False),
            "TOBAN_RUN_ID": str(run_id),
            "TOBAN_ATTEMPT": str(attempt),
            "TOBAN_SLOT": time_text(slot) if slot else "",
            "TOBAN_DEADLINE": time_text(deadline) if deadline else "",
            "TOBAN_FENCE": str(fence),
        }
        super().__init__("in memory", environ)
        self.reports: list[dict[str, Any]] = []
        self.saved: list[Any] = []
        self.outputs: list[Any] = []
        self.log_refs: list[str] = []
        self.heartbeats = 0
        self._earlier = checkpoint
        self._checks, self._cancel_at_check = 0, cancel_at_check
        self._is_cancelling = False

    @property
    def result(self) -> Any:
        """The result of the run: the last output; None without one."""
        return self.outputs[-1] if self.outputs else None

    def cancel(self) -> None:
        """A person cancels the run. The job learns of it by its next request."""
        self._is_cancelling = True

    def __enter__(self) -> Self:
        in_place.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        in_place.remove(self)

    def _exchange(self, line: bytes, _until: float) -> dict[str, Any]:
        request = json.loads(line)
        problem = self._take(**request)
        answer = {"ok": not problem, "error": problem, "value": self.saved[-1] if self.saved else self._earlier}
        self._cancelled = self._cancelled or self._is_cancelling
        return answer

    def _take(self, op: str, **fields: Any) -> str:
        """Carries out a request; what is wrong with it, or empty."""
        match op:
            case "progress":
                problem = _wrong_progress(**fields)
                self.reports += [] if problem else [fields]
                return problem
            case "cancelled":
                self._checks += 1
                if 0 < self._cancel_at_check <= self._checks:
                    self._is_cancelling = True
            case "heartbeat":
                self.heartbeats += 1
            case "checkpoint" | "output" if "value" in fields:
                if problem := _wrong_value(fields["value"]):
                    return problem
                (self.saved if op == "checkpoint" else self.outputs).append(fields["value"])
            case "log_ref":
                self.log_refs.append(fields["value"])
        return ""


def _wrong_value(value: Any) -> str:
    """What an executor refuses of a checkpoint or a result."""
    text = json.dumps({"v": value}, separators=(",", ":"), ensure_ascii=False)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        return f"the value cannot be written as JSON: {error}"
    if "\\u0000" in text.replace("\\\\", ""):
        return "the value has a NUL character, which PostgreSQL cannot store; encode it"
    return f"the value has {size} bytes, the limit is {MAX_VALUE_BYTES}" if size > MAX_VALUE_BYTES else ""


def _wrong_progress(
    percentage: Any = None, done: Any = None, total: Any = None, eta_seconds: Any = None, summary: Any = ""
) -> str:
    """What an executor refuses of progress; empty for what it takes."""
    limits = {
        "percentage": (percentage, 100),
        "done": (done, MAX_COUNT),
        "total": (total, MAX_COUNT),
        "eta_seconds": (eta_seconds, MAX_ETA_SECONDS),
    }
    for name, (value, most) in limits.items():
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most
        ):
            return f"{name} must be a number within 0 and {most:g}"
    if (done is not None or total is not None) and (done is None or not total or done > total or done % 1 or total % 1):
        return "done and total must be whole numbers, done at most total, total above 0"
    if percentage is None and done is None:
        return "progress needs a percentage (0 to 100), or done and total"
    return "" if isinstance(summary, str) else "summary must be text"
