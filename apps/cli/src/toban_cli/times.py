"""Times and spans of time on the command line: 1h30m, +10m, "2026-12-01 09:00"."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from toban_domain.errors import ErrorCode, TobanError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
START_FORMS = 'write "2026-12-01 09:00", 2026-12-01T09:00:00+01:00, or +10m'
FORMS = 'write 10m (ago), 1h30m, 2026-12-01, "2026-12-01 09:00" or 2026-12-01T09:00:00+01:00'
FORMS_AHEAD = FORMS.replace("write ", "write +10m (from now), ")
_PART = re.compile(r"(\d+)([smhdw])")
_SPAN = re.compile(r"(?:\d+[smhdw])+")
# Characters. A longer span is out of every range, or written to be a burden.
_LONGEST = 100
_MOST_DAYS = 366


def span_seconds(text: str) -> float | None:
    """Whole seconds of a span; None when the text is none, infinite when it has too many digits to be meant."""
    if not _SPAN.fullmatch(text):
        return None
    if len(text) > _LONGEST:
        return float("inf")
    return sum(int(count) * UNITS[unit] for count, unit in _PART.findall(text))


def read_span(option: str, text: str) -> int:
    """Whole seconds of a span, at least one. Raises INVALID_ARGUMENT."""
    span = span_seconds(text.strip())
    if span is None:
        raise _wrong(option, f"{text!r} is not a span of time; write 30s, 5m, 1h30m or 2d")
    if not 1 <= span <= _MOST_DAYS * UNITS["d"]:
        raise _wrong(option, f"{text!r} is out of range; use 1s … {_MOST_DAYS}d")
    return int(span)


def read_start_time(text: str, now: datetime, zone: str = "", *, option: str = "--at") -> datetime:
    """The moment that `text` names, in UTC. `option` is named in messages.

    A date and time, with an offset or as the clocks show it in `zone` (this machine's when empty), or `+1h30m` from now (units s m h d w).
    Raises INVALID_ARGUMENT for anything else, for a local time that does not exist or comes twice, for the past, and for a zone that is none.
    """
    _zone(zone)
    given_span = text.strip()
    ahead = span_seconds(given_span[1:]) if given_span.startswith("+") else None
    if ahead is not None:
        try:
            return now + timedelta(seconds=ahead)
        except OverflowError:
            raise _wrong(option, f"{text!r} is too far ahead; {START_FORMS}") from None
    try:
        given = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _wrong(option, f"{text!r} is not a time; {START_FORMS}") from None
    if ":" not in text:
        raise _wrong(option, f"{text!r} has no time of day; {START_FORMS}")
    if given.tzinfo is not None and zone:
        raise _wrong(option, f"{text!r} names its offset, and --timezone names {zone}; give one of them")
    moment = given.astimezone(UTC) if given.tzinfo is not None else _from_clocks(option, given, zone)
    if moment <= now:
        late = timedelta(seconds=int((now - moment).total_seconds()))
        raise _wrong(option, f"{text!r} is in the past (by {late}); name a later time, or leave {option} out")
    return moment


def read_time_bound(option: str, text: str, now: datetime, *, ahead: bool = False) -> datetime:
    """The moment that `text` names, in UTC: so long ago (units s m h d w), or a date or time, of this machine's clocks without an offset.

    With `ahead` also a span from now on, such as +10m. Raises INVALID_ARGUMENT for anything else and for what is not within the
    years 1 to 9999. `option` is named in messages.
    """
    given = text.strip()
    forms = FORMS_AHEAD if ahead else FORMS
    try:
        if ahead and given.startswith("+") and (seconds := span_seconds(given[1:])) is not None:
            return now + timedelta(seconds=seconds)
        ago = span_seconds(given)
        if ago is not None:
            return now - timedelta(seconds=ago)
        return datetime.fromisoformat(given).astimezone(UTC)
    except OverflowError:
        where = "far ahead" if given.startswith("+") else "long ago"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{option}: {text!r} is too {where}; {forms}") from None
    except ValueError:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{option}: {text!r} is not a time; {forms}") from None


def _from_clocks(option: str, given: datetime, zone: str) -> datetime:
    """The one moment at which the clocks of the zone show this time."""
    where = _zone(zone)
    first, second = (given.replace(fold=fold, tzinfo=where).astimezone(UTC) for fold in (0, 1))
    there = zone or "this machine's zone"
    if first.astimezone(where).replace(tzinfo=None, fold=0) != given:
        raise _wrong(option, f"{given} does not exist in {there}: the clocks are put forward then; choose another time")
    if first != second:
        both = " or ".join(moment.astimezone(where).isoformat() for moment in (first, second))
        raise _wrong(option, f"{given} comes twice in {there}: the clocks are put back then; write {both}")
    return first


def _zone(name: str) -> tzinfo | None:
    """None is this machine's zone."""
    if not name:
        return None
    from toban_schedule import ScheduleError, load_zone

    try:
        return load_zone(name)
    except ScheduleError as error:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"--timezone: {error.message}; {error.hint}") from None


def _wrong(option: str, message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, f"{option}: {message}")
