"""Reads the spec of `kind: Schedule`."""

from __future__ import annotations

from collections.abc import Mapping

from toban_domain.errors import ErrorCode
from toban_domain.manifest.fields import Fields
from toban_domain.manifest.jobs import read_payload
from toban_domain.manifest.meta import Meta
from toban_domain.manifest.problems import RuleCheck
from toban_domain.schedule import (
    CATCH_UP_POLICIES,
    DEFAULT_CATCH_UP_MAX,
    RULE_KEYS,
    CatchUpSpec,
    RuleSpec,
    ScheduleSpec,
)

_DAY = 86_400
_PATH_OF = {"gap": "dst.gap", "fold": "dst.fold"}


def read_schedule(meta: Meta, spec: Fields, check_rule: RuleCheck) -> ScheduleSpec:
    """The schedule; what is wrong is in the problems of `spec`. The server checks that the job exists."""
    found_before = len(spec.problems.found)
    rule = _rule(spec, meta.name)
    if len(spec.problems.found) == found_before:
        for key, message, hint in check_rule(rule):
            spec.problems.add(spec.at(_PATH_OF.get(key, key)), message, hint, code=ErrorCode.SCHEDULE_INVALID)
    schedule = ScheduleSpec(
        name=meta.name,
        job=spec.name("job"),
        rule=rule,
        description=meta.description,
        labels=meta.labels,
        enabled=spec.flag("enabled", True),
        payload=read_payload(spec, "payload"),
        scope=spec.text("scope", "system", choices=("system", "account", "user")),
        scope_id=spec.text("scope_id"),
        catch_up=_catch_up(spec),
    )
    spec.later("calendars", "jitter", "jitter_seconds", "on_failure")
    spec.done(
        definition="job",
        tz="timezone",
        zone="timezone",
        interval="interval_seconds",
        every="every_n_minutes",
        schedule="cron",
    )
    return schedule


def _rule(spec: Fields, name: str) -> RuleSpec:
    given = [key for key in RULE_KEYS if spec.has(key)]
    if len(given) != 1:
        what = "has no rule" if not given else f"has {len(given)} rules: {', '.join(given)}"
        spec.problems.add(spec.path, what, f"give exactly one of {', '.join(RULE_KEYS)}")
    dst = spec.below("dst")
    rule = RuleSpec(
        interval_seconds=_number(spec, "interval_seconds", 1, 366 * _DAY),
        every_n_minutes=_number(spec, "every_n_minutes", 1, 366 * 1440),
        hourly_at_minute=_number(spec, "hourly_at_minute", 0, 59),
        daily_at=_text(spec, "daily_at"),
        weekly_at=_text(spec, "weekly_at"),
        cron=_text(spec, "cron"),
        timezone=spec.text("timezone", "UTC"),
        gap=dst.text("gap", "shift", choices=("skip", "shift", "run_after")),
        fold=dst.text("fold", "first", choices=("first", "second", "both")),
        start=spec.text("start"),
        end=spec.text("end"),
        seed=name,
    )
    dst.done()
    return rule


def _number(spec: Fields, key: str, low: int, high: int) -> int | None:
    if not spec.has(key):
        spec.raw(key)
        return None
    return spec.integer(key, low, low=low, high=high)


def _text(spec: Fields, key: str) -> str | None:
    if not spec.has(key):
        spec.raw(key)
        return None
    return spec.text(key)


def _catch_up(spec: Fields) -> CatchUpSpec:
    choices = CATCH_UP_POLICIES
    if not isinstance(spec.raw("catch_up"), Mapping):
        return CatchUpSpec(policy=spec.text("catch_up", "all", choices=choices))
    fields = spec.below("catch_up")
    catch_up = CatchUpSpec(
        policy=fields.text("policy", "all", choices=choices),
        max=fields.integer("max", DEFAULT_CATCH_UP_MAX, low=1, high=10_000),
    )
    fields.done()
    return catch_up
