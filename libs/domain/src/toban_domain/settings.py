"""The settings that operators change at run time: name, default, range, unit, and what each affects. Values live in table `settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toban_domain.errors import ErrorCode, TobanError


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


def _spec(
    name: str, default: float, low: float, high: float, unit: str, affects: str, *, integer: bool = False
) -> SettingSpec:
    return SettingSpec(
        name=name, default=default, minimum=low, maximum=high, unit=unit, affects=affects, integer=integer
    )


_ALL = (
    _spec("leader_tick_seconds", 1.0, 0.1, 60, "seconds", "how often the leader's loops look when nothing wakes them"),
    _spec(
        "assign_ahead_seconds",
        30.0,
        0,
        3600,
        "seconds",
        "how early a slot's run is made and an executor is named for it",
    ),
    _spec("fire_batch_size", 500, 1, 5000, "schedules", "due schedules settled in one transaction", integer=True),
    _spec("heartbeat_interval_seconds", 1.0, 0.2, 60, "seconds", "how often executors send a heartbeat"),
    _spec("heartbeat_ttl_seconds", 5.0, 1, 600, "seconds", "how long an executor counts as heard of after a heartbeat"),
    _spec(
        "worker_detach_grace_seconds",
        5.0,
        0,
        600,
        "seconds",
        "silence beyond the heartbeat TTL before an executor is detached",
    ),
    _spec("leader_stale_seconds", 5.0, 1, 600, "seconds", "how long a leader may go without a finished tick"),
    _spec("subleader_check_seconds", 1.0, 0.2, 60, "seconds", "how often the sub-leader looks at the leader"),
    _spec(
        "reassign_after_seconds",
        60.0,
        5,
        3600,
        "seconds",
        "how long an order may stay open before its executor gets no more grants",
    ),
    _spec("max_jobs_per_worker", 16, 1, 4096, "runs", "slots of an executor that does not say itself", integer=True),
    _spec(
        "continuation_retry_count",
        3,
        1,
        10,
        "tries",
        "questions for continuation before the lease counts as lost",
        integer=True,
    ),
    _spec("continuation_retry_interval_seconds", 0.3, 0.05, 10, "seconds", "time between those questions"),
    _spec("log_retention_days_db", 7, 1, 3650, "days", "how long logs stay in PostgreSQL", integer=True),
    _spec(
        "skip_late_runs_after_seconds",
        0.0,
        0,
        31_536_000,
        "seconds",
        "runs that are later than this are skipped; 0 = never",
    ),
    _spec("executor_lease_seconds", 10.0, 2, 600, "seconds", "lease of executors that register from now on"),
    _spec("lease_freeze_max_seconds", 300.0, 0, 86_400, "seconds", "how long a job may stay frozen without a lease"),
    _spec(
        "shutdown_timeout_seconds",
        30.0,
        0,
        86_400,
        "seconds",
        "how long an executor waits for its jobs when it is stopped",
    ),
)
SETTINGS: Mapping[str, SettingSpec] = {spec.name: spec for spec in _ALL}


class Settings:
    """All values at one moment: stored ones where there are valid ones, defaults elsewhere. Read them by `settings["name"]`."""

    def __init__(self, stored: Mapping[str, Any] | None = None, *, version: int = 0) -> None:
        self.version = version
        self._values: dict[str, float] = {name: spec.default for name, spec in SETTINGS.items()}
        for name, value in (stored or {}).items():
            spec = SETTINGS.get(name)
            if spec is not None:
                self._values[name] = spec.check(value)

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def whole(self, name: str) -> int:
        """The value of a setting that counts something."""
        return int(self._values[name])
