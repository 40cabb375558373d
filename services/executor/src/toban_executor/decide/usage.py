"""Samples of CPU and memory of live attempts: however long one runs, not more than a page can show."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from toban_domain.outcome import AttemptKey
from toban_domain.usage import UsageSample

SAMPLE_SECONDS = 5.0
MAX_SAMPLES = 120
"""Of one attempt, beside its latest sample; with more, every second one is left out."""


class Measured(NamedTuple):
    """Of the processes that live now; `cpu_seconds` with those that they have reaped."""

    cpu_seconds: float
    memory_bytes: int
    processes: int


@dataclass(slots=True)
class _Attempt:
    samples: list[UsageSample] = field(default_factory=list)
    latest: UsageSample | None = None
    # Every how many samples one is kept, and samples so far.
    stride: int = 1
    turns: int = 0
    # CPU time of the processes that lived at the last sample.
    cpu_then: float = 0.0


class UsageBook:
    """The samples of attempts that run."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptKey, _Attempt] = {}

    def closed(self, key: AttemptKey) -> None:
        """The attempt has ended."""
        self._attempts.pop(key, None)

    def add(self, key: AttemptKey, measured: Measured, at: datetime) -> None:
        """What was measured of a live attempt."""
        one = self._attempts.setdefault(key, _Attempt())
        # What ends beside a process that reaps it takes its CPU time with it: that must not go back.
        used = max(0.0, measured.cpu_seconds - one.cpu_then)
        one.cpu_then = measured.cpu_seconds
        before = one.latest.cpu_seconds if one.latest is not None else 0.0
        one.latest = UsageSample(at, before + used, measured.memory_bytes, measured.processes)
        if one.turns % one.stride == 0:
            one.samples.append(one.latest)
        one.turns += 1
        if len(one.samples) > MAX_SAMPLES:
            del one.samples[1::2]
            one.stride *= 2

    def of(self, key: AttemptKey) -> list[UsageSample]:
        """Oldest first, the latest among them; empty for an attempt that does not run here."""
        one = self._attempts.get(key)
        if one is None or one.latest is None:
            return []
        return one.samples if one.samples[-1] is one.latest else [*one.samples, one.latest]
