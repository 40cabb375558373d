"""Breakers and health signals as steps: what is stored, what was counted and the time give what is stored next (docs/limits.md)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from toban_domain.concurrency import BreakerSpec

STATES = ("open", "half_open", "closed")
# How much of a limit a signal leaves.
FACTORS = {"ok": 1.0, "soft": 0.8, "hard": 0.5}
# How much of the whole comes back a minute.
RECOVERY = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """`state` open: nothing starts; half_open: one run probes. `since`: when it got this state. `by_hand`: only an operator closes it."""

    state: str
    since: datetime
    by_hand: bool = False
    reason: str = ""
    updated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Runs that ended since the time of `counted_since`; while a breaker is half open, those that were sent since then."""

    succeeded: int = 0
    failed: int = 0


def counted_since(breaker: Breaker | None, spec: BreakerSpec, now: datetime) -> datetime:
    """From when on ended runs count: the window, and never before the breaker got its state."""
    start = now - timedelta(seconds=spec.window_seconds)
    return start if breaker is None else max(start, breaker.since)


def step(breaker: Breaker | None, spec: BreakerSpec, ended: Ended, now: datetime) -> Breaker | None:
    """The breaker from now on; the same one when nothing changes. None = it was never open."""
    if breaker is not None and breaker.by_hand and breaker.state == "open":
        return breaker
    if breaker is None or breaker.state == "closed":
        return _trip(breaker, spec, ended, now)
    if not spec.failure_ratio:
        return Breaker(state="closed", since=now, reason="the job has no breaker any more", updated_by="leader")
    if breaker.state == "open":
        if now - breaker.since < timedelta(seconds=spec.open_seconds):
            return breaker
        return Breaker(state="half_open", since=now, reason=breaker.reason, updated_by="leader")
    if ended.failed:
        return Breaker(state="open", since=now, reason="the run that probed failed", updated_by="leader")
    if ended.succeeded:
        return Breaker(state="closed", since=now, reason="the run that probed succeeded", updated_by="leader")
    return breaker


def _trip(breaker: Breaker | None, spec: BreakerSpec, ended: Ended, now: datetime) -> Breaker | None:
    total = ended.succeeded + ended.failed
    if not spec.failure_ratio or total < spec.min_runs or ended.failed < spec.failure_ratio * total:
        return breaker
    reason = f"{ended.failed} of {total} runs failed within {spec.window_seconds} s"
    return Breaker(state="open", since=now, reason=reason, updated_by="leader")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A health signal. `factor` of the limit was left at `since`; no more than its level allows is left until `holds_until`."""

    level: str
    factor: float
    since: datetime
    holds_until: datetime
    reason: str = ""
    updated_by: str = ""


def factor_at(signal: Signal | None, now: datetime) -> float:
    """How much of a limit is left: above 0, at most 1."""
    if signal is None:
        return 1.0
    held = min(FACTORS[signal.level], signal.factor + _recovered(signal.since, min(now, signal.holds_until)))
    return min(1.0, held + _recovered(signal.holds_until, now))


def post(before: Signal | None, level: str, now: datetime, *, ttl_seconds: float) -> Signal:
    """The signal that follows `before`: ok ends what holds, and the limit recovers from where it is."""
    left = min(factor_at(before, now), FACTORS[level])
    holds = timedelta(seconds=0 if level == "ok" else ttl_seconds)
    return Signal(level=level, factor=left, since=now, holds_until=now + holds)


def _recovered(start: datetime, end: datetime) -> float:
    return RECOVERY * max(0.0, (end - start).total_seconds()) / 60


def reduced(limit: int, factor: float) -> int:
    """A limit under a signal: at least 1; what is no limit, or stopped, stays so."""
    # One part in a million: 10 × 0.8 is 8, whatever floating point makes of it.
    return limit if limit <= 0 else max(1, int(limit * factor + 1e-6))
