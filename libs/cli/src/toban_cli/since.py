"""The times of `run logs --since` and `--until`, and of `schedule next --after`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from toban_cli.spans import span_seconds
from toban_domain.errors import ErrorCode, TobanError

FORMS = 'write 10m (ago), 1h30m, 2026-12-01, "2026-12-01 09:00" or 2026-12-01T09:00:00+01:00'

FORMS_AHEAD = FORMS.replace("write ", "write +10m (from now), ")


def read_since(option: str, text: str, now: datetime, *, ahead: bool = False) -> datetime:
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
