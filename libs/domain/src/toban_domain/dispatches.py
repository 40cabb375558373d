"""How the steps of a job are dispatched: each stretch of steps for an executor in one dispatch, and each external step alone."""

from __future__ import annotations

from toban_domain.job import JobSpec, StepSpec

EXTERNAL = "external"
DEFAULT_LOCK_TTL_SECONDS = 60
MIN_LOCK_TTL_SECONDS = 1
MAX_LOCK_TTL_SECONDS = 86_400


def has_external_step(spec: JobSpec) -> bool:
    """Whether external workers do some of it."""
    return any(step.type == EXTERNAL for step in spec.steps)


def external_step(spec: JobSpec, index: int) -> StepSpec | None:
    """The step at `index` when an external worker does it; None when an executor does, or when there is none."""
    step = spec.steps[index] if 0 <= index < len(spec.steps) else None
    return step if step is not None and step.type == EXTERNAL else None


def end_of_dispatch(spec: JobSpec, first: int) -> int:
    """The index behind the last step of the dispatch that begins with step `first`."""
    if external_step(spec, first) is not None:
        return first + 1
    return next((i for i in range(first, len(spec.steps)) if external_step(spec, i) is not None), len(spec.steps))


def next_step(spec: JobSpec, first: int) -> int | None:
    """The step with which the run goes on after the dispatch that begins with `first`; None when that is the last one."""
    end = end_of_dispatch(spec, first)
    return end if end < len(spec.steps) else None


def worker_type(step: StepSpec) -> str:
    """Which external workers do this external step."""
    return str(step.body.get("worker_type", ""))


def lock_ttl_ms(step: StepSpec) -> int:
    """How long a claim of an external step is valid without an extension."""
    return 1000 * int(step.body.get("lock_ttl_seconds", DEFAULT_LOCK_TTL_SECONDS))


def claim_timeout_seconds(spec: JobSpec, step: StepSpec) -> int:
    """How long a worker may take for an external step: its timeout or the job's, whichever ends first; 0 = no limit."""
    limits = [seconds for seconds in (step.timeout_seconds, spec.timeout_seconds) if seconds > 0]
    return min(limits, default=0)
