"""`notify:` of a job: which webhook is sent what about its runs (docs/webhooks.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator, ValidatorFunctionWrapHandler, WithJsonSchema
from pydantic_core import PydanticCustomError

from toban_domain.nearest import nearest
from toban_domain.notify import FAILED, KINDS, LATE, LONG, MAX_RULES, MISSING, NotifyRule, QuietHours
from toban_domain.payload import kind_of
from toban_domain.schedule import RuleSpec
from toban_manifests.section import IfMissing, Reading, Section, key, problem
from toban_manifests.values import DAY, Name, Text

_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


def _check_time(value: str) -> str:
    if not _TIME.fullmatch(value):
        raise problem(f"{value[:20]!r} is not a time of day", 'write it in quotes, from "00:00" to "23:59"')
    return value


def _read_kinds(value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        raise problem(f"must be a list, is {kind_of(value)}", f"list some of {', '.join(KINDS)}")
    for one in value:
        if one not in KINDS:
            near = nearest(str(one).lower(), KINDS)
            hint = f"did you mean {near}?" if near else f"use some of {', '.join(KINDS)}"
            raise problem(f"has {str(one)[:60]!r}, which is nothing to be notified of", hint)
    return sorted(set(value), key=KINDS.index)


_TimeOfDay = Annotated[
    Text, AfterValidator(_check_time), WithJsonSchema({"type": "string", "pattern": f"^{_TIME.pattern}$"})
]


class Quiet(Section):
    """Local times between which nothing is sent; it is sent when they are over."""

    MEANT = {"start": "from", "to": "until", "end": "until", "zone": "timezone", "tz": "timezone"}

    begin: Annotated[_TimeOfDay, IfMissing('add `from: "22:00"`')] = key(
        ..., "when they begin", "22:00", type_name="time of day", alias="from"
    )
    until: Annotated[_TimeOfDay, IfMissing('add `until: "07:00"`')] = key(
        ..., "when they end; earlier than `from`: on the next day", "07:00", type_name="time of day"
    )
    timezone: Text = key("UTC", "IANA name of their zone", "Europe/Berlin", type_name="zone")

    @classmethod
    def check_after(cls, given: dict[str, Any], wrong: set[str], reading: Reading) -> Iterator[PydanticCustomError]:
        """A zone that is none, and hours without a length."""
        if "timezone" in given and "timezone" not in wrong:
            rule = RuleSpec(daily_at="00:00", timezone=given["timezone"], seed="quiet")
            for name, message, hint in reading.check_rule(rule):
                if name == "timezone":
                    yield problem(message, hint, below=".timezone")
        if not wrong and given.get("from") == given.get("until"):
            yield problem("is the time at which they begin", "choose another one", below=".until")


class Notify(Section):
    """A webhook, and what it is sent about runs of the job."""

    MEANT = {
        "to": "webhook",
        "name": "webhook",
        "target": "webhook",
        "when": "on",
        "events": "on",
        "quiet": "quiet_hours",
    }

    webhook: Annotated[Name, IfMissing("add `webhook:` of `toban webhook list`")] = key(
        ..., "name of the webhook", "pager", type_name="name"
    )
    on: Annotated[
        list[str],
        PlainValidator(_read_kinds),
        WithJsonSchema({"type": "array", "items": {"enum": list(KINDS)}, "minItems": 1}),
    ] = key(
        [FAILED],
        "`failed`: a run ended FAILED, TIMED_OUT or EXPIRED. `late`: it was skipped as late, or has not started `late_after_seconds` after its "
        "time. `long`: an attempt has run for `long_after_seconds`. `recovered`: it SUCCEEDED, and the one before had failed. `missing`: the job has "
        "not succeeded within `expect_success_within_seconds`",
        ["failed", "recovered"],
        type_name="list of words",
    )
    long_after_seconds: int = key(
        0, "with `long`: how long a run may last", 3600, unset="needed with `long`", ge=1, le=366 * DAY
    )
    late_after_seconds: int = key(
        0,
        "with `late`: how long after its time a run may start",
        300,
        unset="only runs that are skipped as late",
        ge=1,
        le=366 * DAY,
    )
    quiet_hours: Quiet | None = key(
        None, "when nothing is sent", {"from": "22:00", "until": "07:00"}, type_name="hours", unset="none"
    )

    @classmethod
    def check_after(cls, given: dict[str, Any], wrong: set[str], reading: Reading) -> Iterator[PydanticCustomError]:  # noqa: ARG003
        """Times without the word that they belong to, and the other way round."""
        if "on" in wrong:
            return
        kinds = given.get("on", [FAILED])
        if LONG in kinds and "long_after_seconds" not in given:
            yield problem("is missing", "add `long_after_seconds:`, because `on` has long", below=".long_after_seconds")
        for name, kind in (("long_after_seconds", LONG), ("late_after_seconds", LATE)):
            if name in given and kind not in kinds:
                yield problem("has no effect", f"add {kind} to `on`, or take it out", below=f".{name}")

    def to_spec(self) -> NotifyRule:
        """As the domain has it."""
        quiet = self.quiet_hours
        return NotifyRule(
            webhook=self.webhook,
            on=tuple(self.on),
            long_after_seconds=self.long_after_seconds,
            late_after_seconds=self.late_after_seconds,
            quiet_hours=QuietHours(start=quiet.begin, end=quiet.until, timezone=quiet.timezone) if quiet else None,
        )


def check_notify(value: Any, handler: ValidatorFunctionWrapHandler) -> list[Notify]:
    """How many, and each of them."""
    if not isinstance(value, list):
        raise problem(f"must be a list, is {kind_of(value)}", "write [{webhook: pager}]")
    if len(value) > MAX_RULES:
        raise problem(f"has {len(value)} rules", f"use at most {MAX_RULES}")
    rules: list[Notify] = handler(value)
    return rules


def missing_problems(job: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    """`missing` without an expectation, and an expectation about which no webhook is sent anything."""
    rules = job.get("notify") or ()
    wanted = [index for index, rule in enumerate(rules) if MISSING in (rule.get("on") or ())]
    expected = job.get("expect_success_within_seconds")
    if wanted and not expected:
        hint = "add `expect_success_within_seconds:` to the job, or take missing out"
        yield problem("has missing, and the job expects no success", hint, below=f".notify[{wanted[0]}].on")
    if expected and not wanted:
        hint = "add `notify: [{webhook: NAME, on: [missing]}]`, or take it out"
        yield problem("has no effect: no webhook is notified", hint, below=".expect_success_within_seconds")
