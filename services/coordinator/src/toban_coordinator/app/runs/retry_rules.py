"""How long a run waits before its next attempt, and where that begins, by the run's definition."""

from __future__ import annotations

from collections.abc import Iterable

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.decide.runs.report import RetryRule
from toban_domain.retry import FAILED_STEP, RetrySpec
from toban_domain.transitions import LiveRun
from toban_store.tx import Tx


async def retry_rule(t: Tx, definitions: DefinitionCache, runs: Iterable[LiveRun]) -> RetryRule:
    """The rule for `runs`, whose definitions are read. One that cannot be read delays its runs like any other."""
    retrying = [run for run in runs if run.attempt < run.max_attempts]
    specs = await definitions.find(t, {(run.definition_id, run.definition_version) for run in retrying})

    def rule(run: LiveRun) -> tuple[bool, float]:
        # The run's id spreads retries of many runs over the jitter, the same way on each coordinator.
        spread = (run.id * 2_654_435_761 % 1_000) / 1_000
        spec = specs.get((run.definition_id, run.definition_version))
        resumes = spec is not None and spec.retry.from_step == FAILED_STEP
        # The run was made with this many attempts.
        delay = (spec.retry if spec is not None else RetrySpec()).delay_seconds(run.attempt, spread=spread)
        return resumes, delay

    return rule
