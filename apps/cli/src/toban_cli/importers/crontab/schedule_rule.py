"""When a line of a crontab runs: five fields or an @word, turned into the rule of a schedule."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from toban_cli.importers.crontab.time_fields import FieldError, Pick, write_fields
from toban_cli.times import UNITS

_MACROS = {
    "hourly": "@hourly",
    "daily": "@daily",
    "midnight": "@midnight",
    "weekly": "@weekly",
    "monthly": "@monthly",
    "yearly": "@yearly",
    "annually": "@annually",
    "every_minute": "* * * * *",
    "quarterly": "0 0 1 1,4,7,10 *",
    "semi-annually": "0 0 1 1,7 *",
    "semiannually": "0 0 1 1,7 *",
    "bi-annually": "0 0 1 1,7 *",
    "biannually": "0 0 1 1,7 *",
}
_LONGEST = 366 * 86_400
_FIELD_LIKE = re.compile(r"[\d*][\d*,/~-]*|(?=.*[-,])(?:(?:mon|tue|wed|thu|fri|sat|sun|\d)(?:[-,]|$))+", re.IGNORECASE)
_ANACRON = re.compile(r"(?:\d+|@[a-z]+)[ \t]+\d+[ \t]+[A-Za-z][\w.-]*\.[\w.-]+[ \t]+\S")
_FCRON = re.compile(r"@[a-z,()\d]*\d+[smhdw][\w]*", re.IGNORECASE)
NO_SCHEDULE = ("reboot", "noauto")


class TimingError(ValueError):
    """This is no time that can be carried over: why, and what to do."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The rule of the schedule (empty: the line has none, `why_none` is the reason and `remedy` the alternative) and its notes.

    `alone`: cron itself never starts a second run beside the first. `time_lost`: the line has a time that no rule has.
    """

    rule: dict[str, Any]
    text: str
    notes: tuple[str, ...] = ()
    why_none: str = ""
    remedy: str = ""
    time_lost: bool = False
    alone: bool = False
    names_hours: bool = field(default=False)


def split_timing(text: str) -> tuple[str, str]:
    """A line cut into its time and the rest; raises TimingError for the formats of other programs."""
    _refuse_foreign(text)
    words = re.split(r"[ \t]+", text, maxsplit=1 if text.startswith("@") else 5)
    if text.lower().startswith("@every ") or text.lower().startswith("@every\t"):
        words = re.split(r"[ \t]+", text, maxsplit=2)
        return " ".join(words[:2]), words[2] if len(words) > 2 else ""
    if text.startswith("@"):
        return words[0], words[1] if len(words) > 1 else ""
    if len(words) < 5:
        raise TimingError(
            f"it has {len(words)} word{'s' if len(words) != 1 else ''}; a job has five time fields and a command"
        )
    return " ".join(words[:5]), words[5] if len(words) > 5 else ""


def read_timing(text: str, rest: str, pick: Pick) -> Timing:
    """The rule of a time that `split_timing` gave; raises TimingError."""
    if text.startswith("@"):
        return _word(text)
    fields = text.split(" ")
    next_word = re.split(r"[ \t]", rest, maxsplit=1)[0]
    try:
        expression, notes = write_fields(fields, pick)
    except FieldError as error:
        if _FIELD_LIKE.fullmatch(next_word):
            raise _six(text, next_word) from None
        raise TimingError(str(error)) from None
    if _FIELD_LIKE.fullmatch(next_word):
        raise _six(text, next_word)
    return Timing({"cron": expression}, text, notes, names_hours=not fields[1].startswith("*"))


def _six(text: str, sixth: str) -> TimingError:
    return TimingError(
        f"it has six time fields ({text} {sixth}); cron has five. If the first is seconds write the schedule by hand as"
        f' cron: "{text} {sixth}"; if the last is a year, take it away and use `end`'
    )


def _refuse_foreign(text: str) -> None:
    if text[0] in "&%!":
        raise TimingError(
            f"a line that begins with {text[0]} is fcron's; write it with five time fields, or as a schedule by hand"
        )
    if _ANACRON.match(text):
        raise TimingError(
            "it looks like a line of an anacrontab (period, delay, name, command); write a job with a schedule"
            " `daily_at`, `weekly_at` or `cron`, and `catch_up: one`"
        )


def _word(text: str) -> Timing:
    word = text[1:].lower()
    if word in _MACROS:
        hours = word not in ("hourly", "every_minute")
        return Timing({"cron": _MACROS[word]}, text, names_hours=hours)
    if word == "reboot":
        why = "@reboot cannot be a schedule, since Toban runs on a fleet that does not boot"
        return Timing({}, text, why_none=why, remedy=" from a systemd unit, or leave this line in cron", time_lost=True)
    if word == "noauto":
        return Timing({}, text, why_none="@noauto never runs by itself")
    if word == "every_second":
        return Timing({"interval_seconds": 1}, text, (_FROM_END,), alone=True)
    if word.isascii() and word.isdigit():
        return Timing({"interval_seconds": _period(text, int(word))}, text, (_FROM_END,), alone=True)
    if word.startswith("every "):
        return _every(text, word.removeprefix("every "))
    if _FCRON.fullmatch(text):
        raise TimingError(f"{text} is fcron's; write the schedule by hand with interval_seconds or every_n_minutes")
    known = ", ".join(f"@{name}" for name in (*_MACROS, *NO_SCHEDULE))
    raise TimingError(f"{text} is not known; use five time fields or one of {known}")


_FROM_END = (
    "FreeBSD counts these seconds from the end of the run before; here they count from the Unix epoch, and a run that is still live"
    " keeps the next one from starting"
)


def _every(text: str, duration: str) -> Timing:
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhdw])", duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise TimingError(f"{text} has no duration such as 90s, 5m or 1h30m")
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if seconds != int(seconds):
        raise TimingError(f"{text} is not a whole number of seconds; write interval_seconds by hand")
    note = "@every counts from the start of its program; here the seconds count from the Unix epoch"
    return Timing({"interval_seconds": _period(text, int(seconds))}, text, (note,))


def _period(text: str, seconds: int) -> int:
    if not 0 < seconds <= _LONGEST:
        raise TimingError(f"{text} is not within 1 second and 366 days; write a cron expression")
    return seconds
