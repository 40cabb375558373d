"""Safety rules between settings: a change that violates one is refused with the reason. docs/settings.md is generated from them."""

from __future__ import annotations

from dataclasses import dataclass

from toban_domain.lease import LEASE_MARGIN_SECONDS, continuation_window
from toban_domain.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyRule:
    """`name` must be at least `times` x `other` + `plus`; `why` completes the sentence "otherwise ..."."""

    name: str
    times: float
    other: str
    plus: float = 0.0
    why: str

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that this rule is about."""
        return self.name, self.other

    def least(self, settings: Settings) -> float:
        """The smallest allowed value of `name`, given the value of `other`."""
        return self.times * settings[self.other] + self.plus

    def holds(self, settings: Settings) -> bool:
        """Whether `settings` satisfies this rule."""
        return settings[self.name] >= self.least(settings) - 1e-9

    @property
    def text(self) -> str:
        """The rule as shown to operators."""
        plus = f" + {self.plus:g}" if self.plus else ""
        return f"{self.name} must be at least {self.times:g} x {self.other}{plus}"

    def values(self, settings: Settings) -> str:
        """What the rule compares, for a refusal."""
        return f"{self.name} {settings[self.name]:g}, {self.other} {settings[self.other]:g}, minimum {self.least(settings):g}"


class ContinuationFits:
    """The tries to continue must leave a job some of the lease: lease_grace is never negative (docs/fencing.md 3.7)."""

    names = ("executor_lease_seconds", "continuation_retry_count", "continuation_retry_interval_seconds")
    why = "a job that is killed when the lease ends would have to be told before its executor has asked whether it may continue"
    text = (
        "continuation_retry_count x (continuation_retry_interval_seconds + the time for an answer) must be at most half of "
        f"(executor_lease_seconds - {LEASE_MARGIN_SECONDS:g})"
    )

    def holds(self, settings: Settings) -> bool:
        """Whether `settings` satisfies this rule."""
        return self._window(settings) <= self._half(settings) + 1e-9

    def values(self, settings: Settings) -> str:
        """What the rule compares, for a refusal."""
        return f"the tries take up to {self._window(settings):.3g} s, half of the lease is {self._half(settings):.3g} s"

    def _window(self, settings: Settings) -> float:
        return continuation_window(
            tries=settings.whole("continuation_retry_count"),
            interval=settings["continuation_retry_interval_seconds"],
            hold=2 * self._half(settings),
        )

    @staticmethod
    def _half(settings: Settings) -> float:
        return (settings["executor_lease_seconds"] - LEASE_MARGIN_SECONDS) / 2


SAFETY_RULES = (
    SafetyRule(
        name="heartbeat_ttl_seconds",
        times=2,
        other="heartbeat_interval_seconds",
        why="an executor that sends every heartbeat on time would count as unreachable between two heartbeats",
    ),
    SafetyRule(
        name="executor_lease_seconds",
        times=3,
        other="heartbeat_interval_seconds",
        plus=1.3,
        why="one unanswered heartbeat would end the lease and freeze or kill every running job",
    ),
    SafetyRule(
        name="leader_stale_seconds",
        times=3,
        other="leader_tick_seconds",
        why="a healthy leader would be deposed between two ticks",
    ),
    SafetyRule(
        name="reassign_after_seconds",
        times=3,
        other="heartbeat_interval_seconds",
        why="an executor would lose its jobs because of an order that no heartbeat could have delivered yet",
    ),
    SafetyRule(
        name="lease_freeze_max_seconds",
        times=1,
        other="heartbeat_interval_seconds",
        why="a frozen job would be killed before a heartbeat could renew the lease",
    ),
    SafetyRule(
        name="history_retention_days",
        times=1,
        other="webhook_retention_days",
        why="a webhook that waits for its target could not say what became of the run",
    ),
    ContinuationFits(),
)


def refusals(settings: Settings, changed: str) -> list[str]:
    """The safety rules about setting `changed` that `settings` violates, as messages; empty when it violates none."""
    return [
        f"{rule.text}: otherwise {rule.why} ({rule.values(settings)})"
        for rule in SAFETY_RULES
        if changed in rule.names and not rule.holds(settings)
    ]
