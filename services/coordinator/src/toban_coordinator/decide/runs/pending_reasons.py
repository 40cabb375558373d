"""Why due runs wait, in the words of the metric `toban_runs_pending`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from toban_domain.job import JobSpec
from toban_domain.placement import ExecutorLoad
from toban_domain.run import RunState

REASONS = ("slots", "no_executor", "retry", "deferred", "external_worker", "unreadable")
"""slots: executors that fit are full; no_executor: none that takes work fits; retry: its next attempt has a time;
deferred: a limit holds it; external_worker: no worker has claimed it; unreadable: its definition cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Due runs of one state and definition version; `oldest` is an age, seconds."""

    state: RunState
    definition: tuple[int, int]
    retry: bool
    runs: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for one reason: how many runs, and the age of the oldest, seconds."""

    runs: int = 0
    oldest: float = 0.0


def waiting(
    groups: Iterable[Group], executors: Sequence[ExecutorLoad], specs: Mapping[tuple[int, int], JobSpec]
) -> dict[str, Queue]:
    """Reason → what waits for it, of all REASONS; `executors` are those that take new work."""
    found = dict.fromkeys(REASONS, Queue())
    for group in groups:
        reason = _reason(group, executors, specs)
        before = found[reason]
        found[reason] = Queue(before.runs + group.runs, max(before.oldest, group.oldest))
    return found


def _reason(group: Group, executors: Sequence[ExecutorLoad], specs: Mapping[tuple[int, int], JobSpec]) -> str:
    if group.state is RunState.DEFERRED:
        return "deferred"
    if group.state is RunState.WAITING_WORKER:
        return "external_worker"
    if group.retry:
        return "retry"
    spec = specs.get(group.definition)
    if spec is None:
        return "unreadable"
    return "slots" if any(e.takes(spec.selector) for e in executors) else "no_executor"
