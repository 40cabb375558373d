"""What the last runs of a job have in common: how many succeeded, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_admin_web.decide.api_models import Run, RunMark
from toban_domain.run import FAILURES, TERMINAL, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Counts of runs, and the duration in seconds that half of those that ran and ended, or 95 in a hundred of them, did not exceed."""

    total: int
    succeeded: int
    failed: int
    live: int
    p50: float | None
    p95: float | None

    @property
    def other(self) -> int:
        """Cancelled or skipped ones."""
        return self.total - self.succeeded - self.failed - self.live

    @property
    def success(self) -> int | None:
        """Succeeded ones in a hundred of those that succeeded or failed; 100 only when none failed, None without any."""
        ended = self.succeeded + self.failed
        return self.succeeded * 100 // ended if ended else None


def run_summary(runs: Sequence[Run | RunMark]) -> RunSummary:
    """Of the runs in any order."""
    states = [run.state for run in runs]
    terminal = {state.value for state in TERMINAL}
    seconds = sorted(
        (run.finished_at - run.started_at).total_seconds() for run in runs if run.started_at and run.finished_at
    )
    return RunSummary(
        total=len(runs),
        succeeded=states.count(RunState.SUCCEEDED.value),
        failed=sum(state in FAILURES for state in states),
        live=sum(state not in terminal for state in states),
        p50=percentile(seconds, 50),
        p95=percentile(seconds, 95),
    )


def percentile(ordered: Sequence[float], share: int) -> float | None:
    """The smallest value that `share` in a hundred of the ordered values do not exceed; None without values."""
    if not ordered:
        return None
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]
