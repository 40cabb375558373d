"""The settings that operators change at run time: name, default, range, unit, effect. `setting_rules` has the safety rules between them.

Values are stored in table `settings`. Only implemented settings are listed. docs/settings.md is generated from this table.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toban_domain.errors import ErrorCode, TobanError

AT_ONCE = "within 2 seconds, in every service"
AT_REGISTER = "when an executor registers the next time"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingSpec:
    """One setting. `integer`: whole numbers only; `minimum` and `maximum` are inclusive."""

    name: str
    default: float
    minimum: float
    maximum: float
    unit: str
    affects: str
    integer: bool = False
    takes_effect: str = AT_ONCE

    def check(self, value: object) -> float:
        """`value` as a number. Raises INVALID_ARGUMENT with the setting, its range and its unit when it is out of range."""
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
        "how often the leader checks for due schedules and runs when no notification triggers a check",
    ),
    _seconds(
        "assign_ahead_seconds",
        30.0,
        0,
        3600,
        "how long before its scheduled time a run is created and assigned to an executor",
    ),
    _count(
        "fire_batch_size",
        500,
        1,
        5000,
        "schedules",
        "maximum number of due schedules that one fire pass processes, and of runs of one slot that start together when they are spread",
    ),
    _seconds(
        "fire_batch_delay_seconds",
        0.0,
        0,
        600,
        "how much later each further fire_batch_size runs of the same slot start; 0 = all start at the slot's time",
    ),
    _seconds(
        "heartbeat_interval_seconds",
        1.0,
        0.2,
        60,
        "interval between an executor's heartbeats; an executor sends at least three in the duration of its lease",
    ),
    _seconds(
        "heartbeat_ttl_seconds",
        5.0,
        2,
        600,
        "TTL of an executor's registry entry in Redis, and how long an executor counts as reachable after a heartbeat",
    ),
    _seconds(
        "worker_detach_grace_seconds",
        5.0,
        0,
        600,
        "time without a heartbeat, in addition to heartbeat_ttl_seconds, after which an executor is pinged and, without a response, detached",
    ),
    _seconds(
        "leader_stale_seconds",
        5.0,
        1,
        600,
        "maximum time since the leader's last completed tick; after it the sub-leader deposes the leader and health reports a warning; "
        "after the same time without a leader, an error",
    ),
    _seconds("subleader_check_seconds", 1.0, 0.2, 60, "how often the sub-leader checks the leader's health"),
    _seconds(
        "reassign_after_seconds",
        60.0,
        5,
        3600,
        "how long an order may stay unacknowledged before the executor's lease is no longer renewed",
    ),
    _count(
        "max_jobs_per_worker",
        16,
        1,
        4096,
        "runs",
        "number of slots of an executor that does not set SCHEDULER_SLOTS",
        takes_effect=AT_REGISTER,
    ),
    _count(
        "prefetch",
        16,
        0,
        16,
        "orders per slot",
        "orders that an executor whose runs end quickly gets beyond its slots, so that a free slot starts the next run at once; they wait there "
        "for at most a second; 0 = none",
    ),
    _seconds(
        "skip_late_runs_after_seconds",
        0.0,
        0,
        31_536_000,
        "delay after its scheduled time beyond which a run is skipped; 0 = never skip. A job's skip_late_after_seconds takes precedence",
    ),
    _seconds(
        "executor_lease_seconds",
        10.0,
        4,
        600,
        "how long an executor may run jobs without a renewed lease; an executor keeps the duration that was set when it registered",
        takes_effect=AT_REGISTER,
    ),
    _count(
        "continuation_retry_count",
        3,
        1,
        20,
        "tries",
        "how often an executor near the end of its lease asks whether its jobs may continue: the leader, the sub-leader of its node, "
        "another coordinator, one each",
    ),
    _seconds(
        "continuation_retry_interval_seconds",
        0.3,
        0.05,
        60,
        "pause between two of these tries",
    ),
    _seconds(
        "lease_freeze_max_seconds",
        300.0,
        1,
        86_400,
        "how long a job whose executor has lost its lease may stay frozen (on_lease_loss: freeze); after it the job is killed, and its "
        "run repeats as long as max_lost permits",
    ),
    _seconds(
        "shutdown_timeout_seconds",
        30.0,
        0,
        86_400,
        "how long a stopping executor waits for its running jobs; the environment variable SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS takes precedence",
    ),
    _count(
        "dedupe_days",
        7,
        1,
        365,
        "days",
        "how long an event's deduplication key is stored; a second event with the same type and key starts no run",
    ),
    _count(
        "max_chain_depth",
        20,
        1,
        10_000,
        "runs",
        "how many runs in a row the ends of runs may start by triggers; the next one is refused, since triggers that start each other never end",
    ),
    _count(
        "history_retention_days",
        90,
        1,
        3650,
        "days",
        "retention of finished runs with their attempts and events, processed events, the fire ledger, and executors that are off",
    ),
    _count(
        "audit_retention_days",
        365,
        30,
        36_500,
        "days",
        "retention of the audit: who changed or started what, from where; the oldest rows go first, and the rest stays verifiable",
    ),
    _count(
        "webhook_retention_days",
        7,
        1,
        365,
        "days",
        "retention of deliveries of webhooks, also of those that wait for a target that is down",
    ),
    _count(
        "log_retention_days_db",
        7,
        1,
        3650,
        "days",
        "retention of job output in PostgreSQL, counted from the day of dispatch; older output is moved to the archive",
    ),
    _count(
        "log_retention_days_archive",
        0,
        0,
        36_500,
        "days",
        "retention of job output in the archive, counted from the day of dispatch, and never shorter than log_retention_days_db; "
        "older output is deleted. 0 = no deletion by Toban; a lifecycle rule of the bucket may still delete it",
    ),
    _seconds(
        "seal_after_seconds",
        3600.0,
        60,
        604_800,
        "how long to wait for missing log lines after an attempt has ended or its executor is lost; then the attempt is archived without them",
    ),
    _count(
        "log_budget_db_gb",
        50,
        1,
        1_000_000,
        "GB",
        "storage budget for job output in PostgreSQL: above 80 % log-archivers warn and archive the oldest day early; at 100 % new "
        "output is dropped, and a log line states how many lines were dropped",
    ),
)
SETTINGS: Mapping[str, SettingSpec] = {spec.name: spec for spec in _ALL}


class Settings:
    """A snapshot of all values: the stored value when it is valid, else the default. Read one by `settings["name"]`.

    `version` grows with each change; versions before and after a restore of the database are not comparable. `refused` lists the
    settings whose stored value is invalid and replaced by the default.
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
        """Values that any release may have stored: a value that is invalid in this release is replaced by the default."""
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
        """Name → value, in the order of `SETTINGS`."""
        return dict(self._values)

    def whole(self, name: str) -> int:
        """The value of an `integer` setting."""
        return int(self._values[name])

    def with_value(self, name: str, value: object) -> Settings:
        """A copy with one value changed. Raises INVALID_ARGUMENT for a value that is out of range."""
        return Settings({**self._values, name: SETTINGS[name].check(value)}, version=self.version)


def _allowed(name: str, value: object) -> bool:
    try:
        return name in SETTINGS and SETTINGS[name].check(value) is not None
    except TobanError:
        return False


def spec_of(name: str) -> SettingSpec:
    """The definition of a setting. Raises NOT_FOUND with the nearest name."""
    if name in SETTINGS:
        return SETTINGS[name]
    close = difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.5)
    hint = f"; the nearest is {close[0]}" if close else ""
    raise TobanError(
        ErrorCode.NOT_FOUND, f"this version has no setting {name!r}{hint}. `toban settings list` shows all of them"
    )
