"""Holds outcomes until nothing of their attempts is left in the cluster: the guard's tree is empty before the pods of a step are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from toban_domain.outcome import AttemptKey
from toban_executor.decide.models import Report
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

SAID_EVERY = 30
"""Turns between two log lines about an attempt that does not end."""

_log = get_logger(__name__)
_held = metrics.gauge(
    "toban_executor_outcomes_held", "Outcomes that wait for the proof that no pod of their attempts runs any more."
)


class Cluster(Protocol):
    """Where attempts may have left something."""

    def remove(self, keys: Collection[AttemptKey]) -> Mapping[AttemptKey, list[str]]:
        """Begin to remove it; what is left of those that have left something. Raises Exception when that is not known. Called in a thread."""
        ...


@dataclass(slots=True)
class _Wait:
    """From when on a look counts, and turns so far."""

    since: float
    turns: int = 0


class RemoteEnds:
    """`release` gets each attempt of which nothing is left. `settle`: for how many seconds the API may carry out a request whose sender was
    killed."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        settle: float,
        release: Callable[[AttemptKey], None],
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._settle = settle
        self._release = release
        self._wake = wake
        self._clock = clock
        self._waiting: dict[AttemptKey, _Wait] = {}

    def hold(self, report: Report) -> None:
        """The attempt has ended here, as its outcome says. Where its program was killed, the API may still carry out what that had sent."""
        outcome = report.outcome
        by_itself = outcome is not None and outcome.signal is None and outcome.exit_code is not None
        self._waiting[report.key] = _Wait(self._clock.monotonic() + (0.0 if by_itself else self._settle))
        _held.set(len(self._waiting))
        self._wake()

    async def run_once(self) -> int:
        """Look after all that wait, at once; the number of those that are over."""
        keys, now = list(self._waiting), self._clock.monotonic()
        if not keys:
            return 0
        try:
            left = await asyncio.to_thread(self._cluster.remove, keys)
        except Exception as error:
            left = {key: [str(error)] for key in keys}
        over = [key for key in keys if self._is_over(key, left.get(key, []), now)]
        for key in over:
            del self._waiting[key]
            self._release(key)
        _held.set(len(self._waiting))
        return len(over)

    def _is_over(self, key: AttemptKey, left: list[str], now: float) -> bool:
        wait = self._waiting[key]
        wait.turns += 1
        if left and wait.turns % SAID_EVERY == 0:
            _log.warning(
                "the end of a run is not reported before its pods have ended",
                run_id=key.run_id,
                token=key.token,
                left=left,
                remedy="see that the API responds; when the node of a pod is down for good, delete the pod: kubectl delete pod --force",
            )
        return not left and now >= wait.since
