"""The routes of external work, for one worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toban.client.calls import Calls
from toban.client.sync_transport import SyncTransport
from toban.client.target import Target

_ANSWER_SECONDS = 10.0
Key = tuple[int, str]
"""A claim: run and token."""


class WorkSite:
    """Thread-safe. Each method raises TobanError. `worker` is the name that the claims belong to."""

    def __init__(self, target: Target, worker: str, end_retry_seconds: float) -> None:
        self._transport = SyncTransport(target)
        self._worker = worker
        # The loops repeat by themselves what fails here.
        self._once = Calls(0.0)
        self._patient = Calls(end_retry_seconds)

    def claim(self, worker_type: str, limit: int, wait_seconds: float) -> list[Mapping[str, Any]]:
        """Up to `limit` steps, after at most `wait_seconds`."""
        body = {"worker_type": worker_type, "limit": limit, "wait_seconds": wait_seconds}
        found: list[Mapping[str, Any]] = self._post(
            self._once, "claims", body, repeatable=False, timeout=wait_seconds + _ANSWER_SECONDS
        )["steps"]
        return found

    def extend(self, keys: Iterable[Key], timeout: float) -> tuple[set[Key], set[Key]]:
        """Extends claims: those that are lost, and those to cancel."""
        body = {"keys": [_key(one) for one in keys]}
        found = self._post(self._once, "heartbeats", body, repeatable=False, timeout=timeout)
        return _keys(found["lost"]), _keys(found["cancel"])

    def report(self, key: Key, percentage: int, summary: str) -> bool:
        """Shows progress; whether the run is being cancelled."""
        body = {"key": _key(key), "percentage": percentage, "summary": summary}
        return bool(self._post(self._once, "progress", body, repeatable=False)["cancel_requested"])

    def append_log(self, key: Key, first_seq: int, lines: Sequence[Mapping[str, Any]], timeout: float) -> bool:
        """Appends lines of output, the first with this number; whether the run is being cancelled. A repeated call adds nothing twice."""
        body = {"key": _key(key), "first_seq": first_seq, "lines": lines}
        found = self._post(self._once, "log", body, repeatable=False, timeout=timeout)
        return bool(found["cancel_requested"])

    def complete(self, key: Key, result: Any) -> Mapping[str, Any]:
        """The answer to the end of a step: `result`, `code` and `message`. A repeated one is harmless."""
        step = {"key": _key(key)} | ({} if result is None else {"result": result})
        found: Mapping[str, Any] = self._post(self._patient, "complete", {"steps": [step]})["answers"][0]
        return found

    def fail(self, key: Key, error: str, *, retryable: bool) -> None:
        """Ends a step with an error."""
        self._post(self._patient, "fail", {"key": _key(key), "error": error[:10_000], "retryable": retryable})

    def acknowledge_cancel(self, key: Key) -> None:
        """The work on a cancelled step has stopped."""
        self._post(self._patient, "acknowledge-cancel", {"key": _key(key)})

    def close(self) -> None:
        """Closes connections."""
        self._transport.close()

    def _post(
        self, calls: Calls, route: str, body: Mapping[str, Any], *, repeatable: bool = True, timeout: float = 35.0
    ) -> Any:
        # The end of a token has an effect once, so a repeated one is safe.
        flow = calls.post(
            lambda found: found,
            "external-work",
            route,
            body={"worker": self._worker, **body},
            repeatable=repeatable,
            timeout=timeout,
        )
        return self._transport.run(flow)


def key_of(found: Mapping[str, Any]) -> Key:
    """The key of an answer."""
    return int(found["run_id"]), str(found["token"])


def _key(key: Key) -> dict[str, Any]:
    return {"run_id": key[0], "token": key[1]}


def _keys(found: Iterable[Mapping[str, Any]]) -> set[Key]:
    return {key_of(one) for one in found}
