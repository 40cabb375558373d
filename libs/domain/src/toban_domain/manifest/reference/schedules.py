"""The keys of a schedule."""

from __future__ import annotations

from toban_domain.manifest.reference.fields import Kind, field

_ONE = "one of the first six"

SCHEDULE = Kind(
    name="Schedule",
    meaning="When a job is due, and with which payload. Exactly one of the first six keys.",
    example="""\
apiVersion: toban/v1
kind: Schedule
metadata: {name: disk-every-5-minutes}
spec: {job: disk, every_n_minutes: 5}
""",
    fields=(
        field(
            "interval_seconds",
            "whole number",
            "every so many seconds, counted from the Unix epoch: no zone, no DST",
            unset=_ONE,
            example="30",
        ),
        field("every_n_minutes", "whole number", "the same in minutes", unset=_ONE, example="15"),
        field("hourly_at_minute", "0 … 59", "minute of every hour", unset=_ONE, example="20"),
        field("daily_at", "local time", "HH:MM or HH:MM:SS, in quotes", unset=_ONE, example='"03:00"'),
        field("weekly_at", "days and local time", "weekdays and a local time", unset=_ONE, example='"mon-fri 03:00"'),
        field(
            "cron",
            "expression",
            "five fields, or six with seconds first, or `@hourly @daily @midnight @weekly @monthly @yearly @annually @every_minute`; "
            "`L`, `LW`, `15W`, `MON#1`, `5L`, `?` work; `H` is a value drawn from the schedule's name",
            unset=_ONE,
            example='"*/15 8-18 * * MON-FRI"',
        ),
        field("job", "name", "the job to run", unset="required", example="nightly-report"),
        field(
            "timezone",
            "zone",
            "IANA name; the rules come with Toban, not from the machine",
            default="UTC",
            example="Europe/Berlin",
        ),
        field(
            "dst",
            "mapping",
            "what happens to local times that a change of the clocks leaves out or repeats",
            fields=(
                field(
                    "gap",
                    "shift, run_after, skip",
                    "a local time that the change of the clocks leaves out: `shift` by the jump (02:30 → 03:30), `run_after` the jump (03:00), "
                    "`skip`",
                    default="shift",
                    example="skip",
                ),
                field(
                    "fold",
                    "first, second, both",
                    "a local time that comes twice: `first`, `second`, `both`",
                    default="first",
                    example="both",
                ),
            ),
        ),
        field("start", "time with offset", "no slot before it", unset="open", example='"2026-12-01T00:00:00Z"'),
        field("end", "time with offset", "no slot at or after it", unset="open", example='"2027-01-01T00:00:00+01:00"'),
        field("enabled", "true, false", "a disabled schedule has no slots", default="true", example="false"),
        field("payload", "mapping", "laid over the job's `default_payload`", default="{}", example="{name: Ada}"),
        field(
            "catch_up",
            "all, one, skip, or a mapping",
            "slots that are more than 15 s late because nobody led: `all` (the latest `max`), `one` (the latest), `skip`; "
            "each skipped one is named in the ledger",
            default="all",
            example="one",
            fields=(
                field("policy", "all, one, skip", "the same", default="all", example="all"),
                field("max", "1 … 10000", "how many slots `all` makes up for", default="100", example="10"),
            ),
        ),
        field("scope", "system, account, user", "whose schedule it is", default="system", example="account"),
        field("scope_id", "text", "which account or user", default='""', example='"17"'),
    ),
)
