"""Timers and their services to jobs and schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from toban_cli.importers.names import Names
from toban_cli.importers.result import Draft, Entry, Imported, Options, Place, entry_of, lost
from toban_cli.importers.systemd.calendar import CalendarError, read_calendar
from toban_cli.importers.systemd.service import ServiceError, read_service
from toban_cli.importers.systemd.time_span import seconds
from toban_cli.importers.systemd.unit_file import Unit, template_of

_FOR_ALL = (
    "whether a timer is enabled is not in its file: disable schedules of timers that were not (enabled: false)",
    "systemd starts no service that is active; carried over as concurrency.policy: forbid",
    "output of the service is the log of the run (toban run logs RUN)",
)
_FROM_START = {
    "OnBootSec": "the boot",
    "OnStartupSec": "the start of the manager",
    "OnActiveSec": "the activation of the timer",
}
_LONGEST = 366 * 86_400
# Settings that concern systemd alone.
_PLAIN = (
    "Description",
    "Documentation",
    "After",
    "Before",
    "Wants",
    "PartOf",
    "DefaultDependencies",
    "SourcePath",
    "CollectMode",
)
_NEEDED = ("Requires", "Requisite", "BindsTo", "Conflicts", "RequiresMountsFor", "OnFailure", "OnSuccess")


def convert(units: Mapping[str, Unit], options: Options, left_out: Sequence[str] = ()) -> Imported:
    """An entry for each timer of the units, which are given by name; services are looked for among them.

    `left_out` are notes about files that belong to no unit.
    """
    names = Names(options.prefix)
    timers = [unit for name, unit in units.items() if name.endswith(".timer")]
    entries = [_timer(timer, units, options, names) for timer in timers]
    started = {_service_name(timer) for timer in timers}
    started |= {template_of(name) for name in started}
    idle = [name for name in units if name.endswith(".service") and name not in started]
    notes = [f"no timer starts {', '.join(idle)}: left out"] if idle else []
    # An instance has the lines of its template.
    notes += dict.fromkeys(f"{unit.path}: {text}" for unit in units.values() for text in unit.problems)
    notes += left_out
    return Imported(entries=entries, notes=notes, for_all=[*_FOR_ALL, options.zone_note], counted=("timer", "timers"))


def _service_name(timer: Unit) -> str:
    return timer.last("Timer", "Unit") or f"{timer.stem}.service"


def _timer(timer: Unit, units: Mapping[str, Unit], options: Options, names: Names) -> Entry:
    place = Place("timer", timer.name, timer.path, timer.last("Unit", "Description"))
    if timer.is_template:
        return lost(
            f"it is a template: import an instance, such as {timer.stem}NAME.timer (a link to it is enough)", place
        )
    wanted = _service_name(timer)
    found = units.get(wanted) or units.get(template_of(wanted))
    if found is None:
        return lost(f"there is no {wanted}: name its file, or the folder that has both", place)
    service = Unit(wanted, found.path, found.settings)
    draft = Draft(name=names.name(timer.stem, timer.path), job={})
    draft.description = service.last("Unit", "Description") or place.text
    try:
        read_service(service, draft)
    except ServiceError as error:
        return lost(str(error), place)
    _schedules(timer, draft, options)
    _conditions((timer, service), draft)
    return entry_of(draft, place, options.origin_of("systemd", timer.path))


def _schedules(timer: Unit, draft: Draft, options: Options) -> None:
    catch_up = "one" if _is_true(timer.last("Timer", "Persistent")) else "skip"
    reasons: list[str] = []
    for text in timer.all("Timer", "OnCalendar"):
        try:
            draft.schedules.append({**read_calendar(text, options.timezone), "catch_up": catch_up})
        except CalendarError as error:
            reasons.append(f"OnCalendar={text}: {error}")
    for key in ("OnUnitActiveSec", "OnUnitInactiveSec"):
        for text in timer.all("Timer", key):
            span = seconds(text)
            if span is None or not 1 <= span <= _LONGEST or span != int(span):
                reasons.append(f"{key}={text} is not a whole number of seconds within 1 second and 366 days")
                continue
            end = "end" if key == "OnUnitInactiveSec" else "start"
            draft.notes.append(
                f"{key}= counts from the {end} of the service before; here the seconds count from the Unix epoch"
            )
            draft.schedules.append({"interval_seconds": int(span), "catch_up": "skip"})
    for key, begin in _FROM_START.items():
        for text in timer.all("Timer", key):
            reason = f"{key}={text} counts from {begin}, which a fleet of executors does not have"
            (draft.notes if draft.schedules else reasons).append(
                reason if not draft.schedules else f"{reason}: left out"
            )
    draft.untimed = "; ".join(reasons)
    if not draft.schedules and not reasons:
        draft.untimed = "the timer has no time"
    _spread(timer, draft)


def _spread(timer: Unit, draft: Draft) -> None:
    for key in ("RandomizedDelaySec", "RandomizedOffsetSec"):
        delay = timer.last("Timer", key)
        if delay and seconds(delay) not in (0, math.inf):
            draft.labels = {**draft.labels, f"systemd/{key.lower()}": delay}
            draft.notes.append(
                f"{key}={delay} spreads starts, which no schedule does in this version: kept as a label; H in `cron` draws a minute"
            )
    if timer.last("Timer", "AccuracySec"):
        draft.notes.append("AccuracySec= has no effect: runs start at their time")
    if _is_true(timer.last("Timer", "WakeSystem")):
        draft.notes.append("WakeSystem= is NOT carried over: no machine is woken")
    for key in ("OnClockChange", "OnTimezoneChange"):
        if _is_true(timer.last("Timer", key)):
            draft.untimed = "; ".join(filter(None, (draft.untimed, f"{key}= has no schedule")))
    for key in ("FixedRandomDelay", "RemainAfterElapse", "DeferReactivation"):
        timer.last("Timer", key)


def _conditions(pair: tuple[Unit, Unit], draft: Draft) -> None:
    """What the two units ask for besides times and commands."""
    plain: list[str] = []
    for unit in pair:
        for key in (*_PLAIN, *_NEEDED):
            unit.all("Unit", key)
        unit.last("Timer", "Unit")
        for setting in unit.unread("Unit"):
            if setting.startswith(("Condition", "Assert")):
                draft.missing.append(f"{unit.name}: {setting} is a condition of the start: put it into the command")
            else:
                plain.append(setting)
        plain += [f"{key}={value}" for key in _NEEDED for value in unit.all("Unit", key)]
        plain += unit.unread("Timer", "Service")
    if plain:
        draft.notes.append(f"NOT carried over: {'; '.join(dict.fromkeys(plain))}")


def _is_true(text: str) -> bool:
    return text.lower() in ("1", "yes", "y", "true", "t", "on")
