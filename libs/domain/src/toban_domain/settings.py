"""The settings that operators change at run time: name, default, range, unit, what each affects, and which may not stand together.

Values live in table `settings`. A setting is in here only when it has its effect. docs/settings.md is made from this table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

AT_ONCE = "within 2 seconds, everywhere"
AT_REGISTER = "for executors that register from then on"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    """One setting. `integer` ones take whole numbers only; `minimum` and `maximum` are allowed values themselves."""

    name: str
    default: float
    minimum: float
    maximum: float
    unit: str
    affects: str
    integer: bool = False
    takes_effect: str = AT_ONCE

    def check(self, value: object) -> float:
        """`value` when it is allowed; raises INVALID_ARGUMENT naming the setting, its range and its unit."""
        if isinstance(value, int | float) and not isinstance(value, bool) and self.minimum <= value <= self.maximum:
            if not self.integer:
                return float(value)
            if value == int(value):
                return int(value)
        kind = "a whole number" if self.integer else "a number"
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"setting {self.name} is {value!r}; it takes {kind} from {self.minimum:g} to {self.maximum:g} ({self.unit})",
        )


def _seconds(
    name: str, default: float, low: float, high: float, affects: str, *, takes_effect: str = AT_ONCE
) -> SettingSpec:
    return SettingSpec(
        name=name,
        default=default,
        minimum=low,
        maximum=high,
        unit="seconds",
        affects=affects,
        takes_effect=takes_effect,
    )


def _count(
    name: str, default: int, low: int, high: int, unit: str, affects: str, *, takes_effect: str = AT_ONCE
) -> SettingSpec:
    return SettingSpec(
        name=name,
        default=default,
        minimum=low,
        maximum=high,
        unit=unit,
        affects=affects,
        integer=True,
        takes_effect=takes_effect,
    )


_ALL = (
    _seconds(
        "leader_tick_seconds",
        1.0,
        0.1,
        60,
        "how often the leader looks for due schedules and runs when nothing wakes it",
    ),
    _seconds("assign_ahead_seconds", 30.0, 0, 3600, "how early a slot's run is made and an executor is named for it"),
    _count("fire_batch_size", 500, 1, 5000, "schedules", "due schedules settled in one turn"),
    _seconds(
        "heartbeat_interval_seconds",
        1.0,
        0.2,
        60,
        "how often executors send a heartbeat; never less often than three times in the lease that an executor has",
    ),
    _seconds(
        "heartbeat_ttl_seconds",
        5.0,
        2,
        600,
        "how long a worker hash stays in Redis, and how long an executor counts as reachable after a heartbeat",
    ),
    _seconds(
        "worker_detach_grace_seconds",
        5.0,
        0,
        600,
        "silence beyond heartbeat_ttl_seconds before an executor is pinged and detached",
    ),
    _seconds(
        "leader_stale_seconds",
        5.0,
        1,
        600,
        "how long a leader may go without a finished tick before its sub-leader deposes it and health warns",
    ),
    _seconds("subleader_check_seconds", 1.0, 0.2, 60, "how often the sub-leader looks at the leader"),
    _seconds(
        "reassign_after_seconds",
        60.0,
        5,
        3600,
        "how long an order may stay open before its executor gets no more grants",
    ),
    _count(
        "max_jobs_per_worker",
        16,
        1,
        4096,
        "runs",
        "slots of an executor without SCHEDULER_SLOTS",
        takes_effect=AT_REGISTER,
    ),
    _seconds(
        "skip_late_runs_after_seconds",
        0.0,
        0,
        31_536_000,
        "runs that are later than this are skipped; 0 = never. A job's own limit comes first",
    ),
    _seconds(
        "executor_lease_seconds",
        10.0,
        4,
        600,
        "how long an executor may run jobs without a grant; an executor keeps the lease that it registered with",
        takes_effect=AT_REGISTER,
    ),
    _seconds(
        "shutdown_timeout_seconds",
        30.0,
        0,
        86_400,
        "how long an executor lets its jobs go on when it is stopped; SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS of an executor wins",
    ),
    _count(
        "dedupe_days",
        7,
        1,
        365,
        "days",
        "how long an event's dedupe key is remembered: a second event of that type and key starts nothing",
    ),
    _count(
        "history_retention_days",
        90,
        1,
        3650,
        "days",
        "how long finished runs, their attempts and events, processed events, the fire ledger and executors that are off are kept",
    ),
    _count(
        "log_retention_days_db",
        7,
        1,
        3650,
        "days",
        "how long the output of runs stays in PostgreSQL, counted from the day of the dispatch; older output goes to the archive",
    ),
    _count(
        "log_retention_days_archive",
        0,
        0,
        36_500,
        "days",
        "how long the archive keeps the output of runs, counted from the day of the dispatch, but never shorter than log_retention_days_db; "
        "older output is deleted. 0 = for ever, or as long as a rule of the bucket lets it",
    ),
    _seconds(
        "seal_after_seconds",
        3600.0,
        60,
        604_800,
        "how long lines of an attempt are waited for after its end, or after its executor is gone, before it is archived without them",
    ),
    _count(
        "log_budget_db_gb",
        50,
        1,
        1_000_000,
        "GB",
        "size that the output of runs may have in PostgreSQL: from 80 % of it on log-archivers warn and archive the oldest day early; at 100 % new "
        "output is left out, and a line counts it",
    ),
)
SETTINGS: Mapping[str, SettingSpec] = {spec.name: spec for spec in _ALL}


class Settings:
    """All values at one moment: stored ones where there are valid ones, defaults elsewhere. Read them by `settings["name"]`.

    `version` grows with each change; it says nothing across a restore of the database. `refused` names the settings whose stored value is not
    allowed, so that the default replaces an unknown value.
    """

    def __init__(
        self, stored: Mapping[str, Any] | None = None, *, version: int = 0, refused: frozenset[str] = frozenset()
    ) -> None:
        self.version = version
        self.refused = refused
        self._values: dict[str, float] = {name: spec.default for name, spec in SETTINGS.items()}
        for name, value in (stored or {}).items():
            spec = SETTINGS.get(name)
            if spec is not None:
                self._values[name] = spec.check(value)

    @classmethod
    def tolerant(cls, stored: Mapping[str, Any], *, version: int = 0) -> Settings:
        """As they were stored by whatever release: a value that this one does not allow gives way to the default."""
        allowed = {name: value for name, value in stored.items() if _allowed(name, value)}
        return cls(allowed, version=version, refused=frozenset(SETTINGS.keys() & stored.keys() - allowed.keys()))

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and (self.version, self._values) == (other.version, other._values)

    def __hash__(self) -> int:
        return hash((self.version, tuple(self._values.items())))

    @property
    def values(self) -> Mapping[str, float]:
        """Name to value, in the order of the table."""
        return dict(self._values)

    def whole(self, name: str) -> int:
        """The value of a setting that counts something."""
        return int(self._values[name])

    def with_value(self, name: str, value: object) -> Settings:
        """These with one changed. Raises INVALID_ARGUMENT for a value that is out of range."""
        return Settings({**self._values, name: SETTINGS[name].check(value)}, version=self.version)


def _allowed(name: str, value: object) -> bool:
    try:
        return name in SETTINGS and SETTINGS[name].check(value) is not None
    except TobanError:
        return False


def spec_of(name: str) -> SettingSpec:
    """The setting of that name. Raises NOT_FOUND with the nearest name."""
    if name in SETTINGS:
        return SETTINGS[name]
    close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
    hint = f"; the nearest is {close[0]}" if close else ""
    raise TobanError(
        ErrorCode.NOT_FOUND, f"this version has no setting {name!r}{hint}. `toban settings list` shows all of them"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyRule:
    """`name` must be at least `times` x `other` + `plus`; `why` ends the sentence "otherwise ..."."""

    name: str
    times: float
    other: str
    plus: float = 0.0
    why: str

    def least(self, settings: Settings) -> float:
        """The smallest value of `name` that the other one allows."""
        return self.times * settings[self.other] + self.plus

    def holds(self, settings: Settings) -> bool:
        """True when these two may stand together."""
        return settings[self.name] >= self.least(settings) - 1e-9

    @property
    def text(self) -> str:
        """The rule as people read it."""
        plus = f" + {self.plus:g}" if self.plus else ""
        return f"{self.name} must be at least {self.times:g} x {self.other}{plus}"


SAFETY_RULES = (
    SafetyRule(
        name="heartbeat_ttl_seconds",
        times=2,
        other="heartbeat_interval_seconds",
        why="an executor that sends every heartbeat would count as silent between two of them",
    ),
    SafetyRule(
        name="executor_lease_seconds",
        times=3,
        other="heartbeat_interval_seconds",
        plus=1.3,
        why="one heartbeat without an answer would end the lease, and with it every running job",
    ),
    SafetyRule(
        name="leader_stale_seconds",
        times=3,
        other="leader_tick_seconds",
        why="a healthy leader would be deposed between two of its ticks",
    ),
    SafetyRule(
        name="reassign_after_seconds",
        times=3,
        other="heartbeat_interval_seconds",
        why="an executor would lose its jobs for an order that no heartbeat could have brought to it yet",
    ),
)


def refusals(settings: Settings, changed: str) -> list[str]:
    """Why `changed` may not have its value in `settings`: the safety rules about it that do not hold; empty when it may."""
    return [
        f"{rule.text}: otherwise {rule.why} "
        f"({rule.name} {settings[rule.name]:g}, {rule.other} {settings[rule.other]:g}, least {rule.least(settings):g})"
        for rule in SAFETY_RULES
        if changed in (rule.name, rule.other) and not rule.holds(settings)
    ]
