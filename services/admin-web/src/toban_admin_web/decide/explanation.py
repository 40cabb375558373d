"""Why a run waits, or what became of it, as the run's page shows it. Fields as in proto/toban_proto/v1/coordinator.proto."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheck:
    """One condition of the start."""

    name: str
    blocks: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimit:
    """A limit that the run needs; `effective` -1 = nothing starts."""

    name: str
    effective: int
    held: int
    weight: int
    blocks: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCandidate:
    """An executor that might take the run; `message` says why it cannot."""

    worker_id: int
    executor: str
    fits: bool
    running: int
    slots: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExplanation:
    """The first obstacle first. Checks, limits and executors are empty once the run was sent."""

    state: str
    reasons: tuple[str, ...]
    checks: tuple[RunCheck, ...]
    limits: tuple[RunLimit, ...]
    executors: tuple[RunCandidate, ...]
