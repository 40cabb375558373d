"""What this package reads of a schedule, and how it says that a rule is wrong."""

from __future__ import annotations

from typing import Protocol

GAPS = ("skip", "shift", "run_after")
FOLDS = ("first", "second", "both")


class RuleLike(Protocol):
    """The fields of a rule (toban_domain.schedule.RuleSpec has them). Exactly one of the first six is not None."""

    @property
    def interval_seconds(self) -> int | None:
        """Seconds between slots, counted from the Unix epoch."""

    @property
    def every_n_minutes(self) -> int | None:
        """Minutes between slots, counted from the Unix epoch."""

    @property
    def hourly_at_minute(self) -> int | None:
        """Minute of every hour, 0 … 59, local time."""

    @property
    def daily_at(self) -> str | None:
        """Local time, HH:MM or HH:MM:SS."""

    @property
    def weekly_at(self) -> str | None:
        """Weekdays and a local time: "mon,thu 03:00"."""

    @property
    def cron(self) -> str | None:
        """Five fields, or six with seconds first, or an alias such as @daily."""

    @property
    def seed(self) -> str:
        """What H in a cron expression is drawn from: the schedule's name."""

    @property
    def timezone(self) -> str:
        """IANA name of the zone of local times."""

    @property
    def gap(self) -> str:
        """Local times that a change of the clocks leaves out: skip | shift | run_after."""

    @property
    def fold(self) -> str:
        """Local times that a change of the clocks repeats: first | second | both."""

    @property
    def start(self) -> str:
        """ISO time with an offset: no slot before it ("" = open)."""

    @property
    def end(self) -> str:
        """ISO time with an offset: no slot at or after it ("" = open)."""


class ScheduleError(ValueError):
    """A rule is wrong: the field of the rule, what, and the remedy."""

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(f"{field}: {message}" + (f"; {hint}" if hint else ""))
        self.field = field
        self.message = message
        self.hint = hint
