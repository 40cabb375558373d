"""The times of `run logs --since` and `--until`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from toban_cli.spans import span_seconds
from toban_domain.errors import ErrorCode, TobanError

FORMS = 'write 10m (ago), 1h30m, 2026-12-01, "2026-12-01 09:00" or 2026-12-01T09:00:00+01:00'


def read_since(option: str, text: str, now: datetime) -> datetime:
    """The moment that `text` names, in UTC: so long ago (units s m h d w), or a date or time, of this machine's clocks without an offset.

    Raises INVALID_ARGUMENT for anything else and for what is before the year 1. `option` is named in messages.
    """
    given = text.strip()
    try:
        ago = span_seconds(given)
        if ago is not None:
            return now - timedelta(seconds=ago)
        return datetime.fromisoformat(given).astimezone(UTC)
    except OverflowError:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{option}: {text!r} is too long ago; {FORMS}") from None
    except ValueError:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{option}: {text!r} is not a time; {FORMS}") from None
