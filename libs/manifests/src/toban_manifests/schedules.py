"""`kind: Schedule`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from toban_domain.errors import ErrorCode
from toban_domain.schedule import DEFAULT_CATCH_UP_MAX, RULE_KEYS, CatchUpSpec, RuleSpec, ScheduleSpec
from toban_manifests.section import Reading, Section, key, part, problem, raise_problems
from toban_manifests.templates import schedule_problems
from toban_manifests.values import DAY, ManifestModel, Name, Payload, Text

_ONE = "one of the first six"
# The keys that a rule is made of.
_RULE = {*RULE_KEYS, "timezone", "dst", "start", "end"}
_PATH_OF = {"gap": "dst.gap", "fold": "dst.fold"}


class Dst(Section):
    """Local times that a change of the clocks leaves out or repeats."""

    gap: Literal["skip", "shift", "run_after"] = key(
        "shift",
        "a local time that the change of the clocks leaves out: `shift` by the jump (02:30 → 03:30), `run_after` the jump (03:00), `skip`",
        "skip",
    )
    fold: Literal["first", "second", "both"] = key(
        "first", "a local time that comes twice: `first`, `second`, `both`", "both"
    )


class CatchUp(Section):
    """Slots that passed while no coordinator led."""

    policy: Literal["all", "one", "skip"] = key("all", "the same", "all")
    max: int = key(
        DEFAULT_CATCH_UP_MAX, "how many slots `all` makes up for", 10, type_name="1 … 10000", ge=1, le=10_000
    )


def _read_catch_up(value: Any) -> CatchUp:
    if isinstance(value, Mapping):
        return CatchUp.model_validate(value)
    try:
        return CatchUp.model_validate({"policy": value})
    except ValidationError as error:
        raise_problems(problem(**one["ctx"]) for one in error.errors(include_url=False))
        raise


class Schedule(Section):
    """The spec of a schedule."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [name]} for name in RULE_KEYS]})

    MEANT = {
        "definition": "job",
        "tz": "timezone",
        "zone": "timezone",
        "interval": "interval_seconds",
        "every": "every_n_minutes",
        "schedule": "cron",
    }
    LATER = ("calendars", "jitter", "jitter_seconds")

    interval_seconds: int | None = key(
        None,
        "every so many seconds, counted from the Unix epoch: no zone, no DST",
        30,
        unset=_ONE,
        ge=1,
        le=366 * DAY,
    )
    every_n_minutes: int | None = key(None, "the same in minutes", 15, unset=_ONE, ge=1, le=366 * 1440)
    hourly_at_minute: int | None = key(None, "minute of every hour", 20, type_name="0 … 59", unset=_ONE, ge=0, le=59)
    daily_at: Text | None = key(None, "HH:MM or HH:MM:SS, in quotes", "03:00", type_name="local time", unset=_ONE)
    weekly_at: Text | None = key(
        None, "weekdays and a local time", "mon-fri 03:00", type_name="days and local time", unset=_ONE
    )
    cron: Text | None = key(
        None,
        "five fields, or six with seconds first, or `@hourly @daily @midnight @weekly @monthly @yearly @annually @every_minute`; "
        "`L`, `LW`, `15W`, `MON#1`, `5L`, `?` work; `H` is a value drawn from the schedule's name",
        "*/15 8-18 * * MON-FRI",
        type_name="expression",
        unset=_ONE,
    )
    job: Name = key(..., "the job to run", "nightly-report", type_name="name")
    timezone: Text = key(
        "UTC", "IANA name; the rules come with Toban, not from the machine", "Europe/Berlin", type_name="zone"
    )
    dst: Dst = part(Dst, "what happens to local times that a change of the clocks leaves out or repeats")
    start: Text = key("", "no slot before it", "2026-12-01T00:00:00Z", type_name="time with offset", unset="open")
    end: Text = key(
        "", "no slot at or after it", "2027-01-01T00:00:00+01:00", type_name="time with offset", unset="open"
    )
    enabled: bool = key(True, "a disabled schedule has no slots", False)
    payload: Payload = key(
        {},
        "laid over the job's `default_payload`; its texts may refer to the slot ([templates](jobs.md#templates))",
        {"day": "${{ slot.date }}"},
    )
    catch_up: Annotated[
        CatchUp,
        PlainValidator(_read_catch_up, json_schema_input_type=Literal["all", "one", "skip"] | CatchUp),
    ] = Field(
        default_factory=CatchUp,
        description="slots that are more than 15 s late because no coordinator led: `all` (the latest `max`), `one` (the latest), `skip`; "
        "each skipped one is named in the ledger",
        examples=["one"],
        json_schema_extra={"default": "all", "x-type": "all, one, skip, or a mapping"},
    )
    scope: Literal["system", "account", "user"] = key("system", "whose schedule it is", "account")
    scope_id: Text = key("", "which account or user", "17")
    on_failure: Literal["keep", "remove"] = key(
        "keep",
        "when a run could not be created and five retries failed, too: `keep` the schedule, which is `failed` then, or `remove` it",
        "remove",
    )

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Iterator[PydanticCustomError]:
        """Exactly one rule."""
        rules = [name for name in RULE_KEYS if name in given]
        if len(rules) != 1:
            what = "has no rule" if not rules else f"has {len(rules)} rules: {', '.join(rules)}"
            yield problem(what, f"give exactly one of {', '.join(RULE_KEYS)}")

    @classmethod
    def check_after(cls, given: dict[str, Any], wrong: set[str], reading: Reading) -> Iterator[PydanticCustomError]:
        """References of the payload, and the arithmetic of a rule whose keys are sound."""
        if "payload" not in wrong:
            yield from schedule_problems(given.get("payload") or {})
        if wrong & _RULE or sum(name in given for name in RULE_KEYS) != 1:
            return
        dst = {name: value for name, value in given.get("dst", {}).items() if value is not None}
        rule = RuleSpec.from_json({**given, "dst": dst, "name": reading.name})
        for name, message, hint in reading.check_rule(rule):
            yield problem(message, hint, below=f".{_PATH_OF.get(name, name)}", code=ErrorCode.SCHEDULE_INVALID)


class ScheduleManifest(ManifestModel):
    """When a job is due, and with which payload. Exactly one of the first six keys."""

    EXAMPLE = """\
apiVersion: toban/v1
kind: Schedule
metadata: {name: disk-every-5-minutes}
spec: {job: disk, every_n_minutes: 5}
"""

    kind: Literal["Schedule"]
    spec: Schedule

    def to_spec(self) -> ScheduleSpec:
        """As the domain has it."""
        spec = self.spec
        return ScheduleSpec(
            **vars(self.metadata),
            job=spec.job,
            rule=RuleSpec(
                **{name: getattr(spec, name) for name in RULE_KEYS},
                timezone=spec.timezone,
                **vars(spec.dst),
                start=spec.start,
                end=spec.end,
                seed=self.metadata.name,
            ),
            enabled=spec.enabled,
            payload=spec.payload,
            scope=spec.scope,
            scope_id=spec.scope_id,
            catch_up=CatchUpSpec(**vars(spec.catch_up)),
            on_failure=spec.on_failure,
        )
