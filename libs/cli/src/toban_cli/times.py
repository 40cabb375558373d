"""The time of `run start --at`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from toban_cli.spans import span_seconds
from toban_domain.errors import ErrorCode, TobanError

FORMS = 'write "2026-12-01 09:00", 2026-12-01T09:00:00+01:00, or +10m'


def read_at(text: str, now: datetime, zone: str = "") -> datetime:
    """The moment that `text` names, in UTC.

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
            raise _wrong(f"{text!r} is too far ahead; {FORMS}") from None
    try:
        given = datetime.fromisoformat(text.strip())
    except ValueError:
        raise _wrong(f"{text!r} is not a time; {FORMS}") from None
    if ":" not in text:
        raise _wrong(f"{text!r} has no time of day; {FORMS}")
    if given.tzinfo is not None and zone:
        raise _wrong(f"{text!r} names its offset, and --timezone names {zone}; give one of them")
    moment = given.astimezone(UTC) if given.tzinfo is not None else _from_clocks(given, zone)
    if moment <= now:
        late = timedelta(seconds=int((now - moment).total_seconds()))
        raise _wrong(f"{text!r} is in the past (by {late}); leave --at out to start now")
    return moment


def _from_clocks(given: datetime, zone: str) -> datetime:
    """The one moment at which the clocks of the zone show this time."""
    where = _zone(zone)
    first, second = (given.replace(fold=fold, tzinfo=where).astimezone(UTC) for fold in (0, 1))
    there = zone or "this machine's zone"
    if first.astimezone(where).replace(tzinfo=None, fold=0) != given:
        raise _wrong(f"{given} does not exist in {there}: the clocks are put forward then; choose another time")
    if first != second:
        both = " or ".join(moment.astimezone(where).isoformat() for moment in (first, second))
        raise _wrong(f"{given} comes twice in {there}: the clocks are put back then; write {both}")
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


def _wrong(message: str) -> TobanError:
    return TobanError(ErrorCode.INVALID_ARGUMENT, f"--at: {message}")
