"""Assignments of a crontab, in their order: each holds for the lines below it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from toban_cli.importers.crontab.line_parser import BLANKS
from toban_schedule.spec import ScheduleError
from toban_schedule.zones import load_zone

DEFAULT_SHELL = "/bin/sh"
_MAX_VALUE = 4096
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LINE = re.compile(r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s=]+))[ \t]*=(?P<value>.*)""", re.DOTALL)
_MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING", "CRON_MAIL_SUCCESS", "CRON_MAIL_FORMAT")
# Variables of other programs that read crontabs, each with its effect.
_LATER = {
    "RANDOM_DELAY": "a random delay of up to so many minutes",
    "DELAY": "a delay after the boot",
    "START_HOURS_RANGE": "hours in which anacron may start jobs",
    "PERSISTENT": "a run for what was missed while the machine was off",
    "BATCH": "a low priority of CPU and disk",
    "CRON_INHERIT_VARIABLES": "variables of cron itself",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What holds for the next job. `bad_zone` is the line whose CRON_TZ is no zone (0 = none); `home` "" = the account's."""

    env: Mapping[str, str] = field(default_factory=dict)
    shell: str = DEFAULT_SHELL
    home: str = ""
    timezone: str = ""
    bad_zone: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The result of an assignment: the surroundings after it, how it was carried over, or why not (`lost`).

    `label_only`: its effect is not available, the jobs keep it as a label.
    """

    after: Surroundings
    outcome: str
    lost: bool = False
    label_only: bool = False


def assign(before: Surroundings, text: str, number: int) -> Assigned:
    """One assignment; `text` is the whole line."""
    found = _LINE.fullmatch(text.strip(BLANKS))
    value = None if found is None else _value(found["value"])
    if found is None or value is None:
        return Assigned(before, "the quotes do not match; cron refuses it too: close them and import again", lost=True)
    name = found["double"] or found["single"] or found["bare"] or ""
    if name == "CRON_TZ":
        return _zone(before, value, number)
    if name in _MAIL:
        return _mail(before, name, value)
    if name in _LATER:
        label = f"cron/{name.lower().replace('_', '-')}"
        return Assigned(
            replace(before, labels={**before.labels, label: value[:_MAX_VALUE]}),
            f"{label} of the jobs below; {_LATER[name]} is not available in this version",
            label_only=True,
        )
    return _variable(before, name, value)


def _value(raw: str) -> str | None:
    """The value without blanks and one pair of quotes around it; None when the quotes do not match."""
    text = raw.strip(BLANKS)
    if text[:1] not in ("'", '"'):
        return text
    return text[1:-1] if len(text) > 1 and text[-1] == text[0] and text[0] not in text[1:-1] else None


def _zone(before: Surroundings, value: str, number: int) -> Assigned:
    name = value.removeprefix(":")
    if not name:
        return Assigned(replace(before, timezone="", bad_zone=0), "the lines below are in the local time again")
    try:
        load_zone(name)
    except ScheduleError as error:
        outcome = (
            f"there is no zone {name!r} ({error.hint}): the jobs below it are not carried over; write an IANA name"
        )
        return Assigned(replace(before, bad_zone=number), outcome, lost=True)
    return Assigned(replace(before, timezone=name, bad_zone=0), f"timezone: {name} of the schedules below")


def _mail(before: Surroundings, name: str, value: str) -> Assigned:
    label = f"cron/{name.lower().replace('_', '-')}"
    after = replace(before, labels={**before.labels, label: value[:_MAX_VALUE]})
    if name == "MAILTO" and not value:
        return Assigned(after, "no mail, as here: output is kept as the run's log")
    return Assigned(
        after,
        f"{label} of the jobs below; Toban sends no mail in this version, output is kept as the run's log",
        label_only=True,
    )


def _variable(before: Surroundings, name: str, value: str) -> Assigned:
    if not _NAME.fullmatch(name):
        return Assigned(before, f"{name!r} cannot be the name of a variable (A-Z, a-z, 0-9, _): rename it", lost=True)
    if name.startswith("TOBAN_"):
        return Assigned(before, "names beginning with TOBAN_ are set by the executor: choose another name", lost=True)
    if name == "LOGNAME":
        return Assigned(before, "cron itself sets LOGNAME to the account and ignores this: left out", lost=True)
    if len(value) > _MAX_VALUE:
        return Assigned(before, f"is longer than {_MAX_VALUE} characters: put it into a file", lost=True)
    after = replace(before, env={**before.env, name: value})
    notes = _remarks(name, value)
    if name == "SHELL" and value:
        after, notes = replace(after, shell=value), ["the shell of the commands below", *notes]
    elif name == "HOME":
        if value.startswith("/"):
            after, notes = replace(after, home=value), ["and working_dir, as cron goes to HOME first", *notes]
        else:
            notes.append("it is not absolute, so working_dir is not set")
    return Assigned(after, "; ".join([f"env.{name} of the jobs below", *notes]))


def _remarks(name: str, value: str) -> list[str]:
    remarks = []
    if "$" in value or (name in ("PATH", "HOME") and "~" in value):
        remarks.append("cron does not expand $ or ~ here and neither does Toban: carried over as it stands")
    if name == "TZ":
        remarks.append("it changes the clock of the command, not of the schedule (that is CRON_TZ)")
    if " #" in value:
        remarks.append("a # in a value is part of it, as in cron")
    return remarks
