"""The state of each step of a run, from its definition and from the steps that its last attempt has started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_domain.outcome import StepResult
from toban_domain.run import TERMINAL, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """A step: pending, running, succeeded, failed, skipped (an earlier attempt has done it, or an earlier step has failed) or cancelled."""

    id: str
    name: str
    state: str
    started: StepResult | None = None


def step_states(
    definition: Sequence[Mapping[str, Any]], started: Sequence[StepResult], run: RunState
) -> list[StepState]:
    """None for a job of one step: that is the run itself."""
    if len(definition) < 2:
        return []
    by_index = {step.index: step for step in started}
    return [
        StepState(
            id=step["id"],
            name=step.get("name", ""),
            state=_state(index, by_index.get(index), started, run),
            started=by_index.get(index),
        )
        for index, step in enumerate(definition)
    ]


def _state(index: int, step: StepResult | None, started: Sequence[StepResult], run: RunState) -> str:
    if step is None:
        before = bool(started) and index < started[0].index
        return "skipped" if before or run in TERMINAL else "pending"
    if step.finished_at is None:
        return "running" if run not in TERMINAL else _ended(run)
    if step.exit_code == 0:
        return "succeeded"
    return _ended(run)


def _ended(run: RunState) -> str:
    return "cancelled" if run is RunState.CANCELED else "failed"
