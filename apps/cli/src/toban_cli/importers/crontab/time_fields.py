"""The five time fields of cron: checked by name and range, and written so that Toban's cron reads the same instants.

What crons disagree on is decided here and noted: `5/15`, ranges that wrap, random ranges (`0~59`), full names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november")
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
# Chooses one of so many values for a random range, the same each time.
Pick = Callable[[str, int], int]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name, its lowest and highest value, its names (the first one means `low`)."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, (*_MONTHS, "december")),
    Field("day of week", 0, 7, _DAYS),
)


class FieldError(ValueError):
    """A field is wrong: the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Written:
    """A field as Toban's cron takes it, and notes about it."""

    text: str
    notes: tuple[str, ...] = ()


def write_fields(texts: Sequence[str], pick: Pick) -> tuple[str, tuple[str, ...]]:
    """The expression and its notes; raises FieldError for the first field that is wrong."""
    written = [write_field(field, text, pick) for field, text in zip(FIELDS, texts, strict=True)]
    notes = [note for item in written for note in item.notes]
    day, weekday = texts[2], texts[4]
    if day != "*" and weekday != "*":
        both = day.startswith("*") or weekday.startswith("*")
        rule = "both must match, since one begins with *" if both else "either of them matches"
        notes.append(f"day of month and day of week are both given: {rule}, as in cron")
    return " ".join(item.text for item in written), tuple(notes)


def write_field(field: Field, text: str, pick: Pick) -> Written:
    """One field; raises FieldError."""
    _refuse_foreign(field, text)
    parts = [_item(field, item, text, pick) for item in text.split(",")]
    return Written(",".join(part.text for part in parts), tuple(note for part in parts for note in part.notes))


def _refuse_foreign(field: Field, text: str) -> None:
    upper = text.upper()
    if "?" in text or "#" in text or (field.name.startswith("day") and upper.rstrip("W").endswith("L")):
        raise FieldError(
            f"{text!r} in the {field.name} is Quartz's, not cron's; write the schedule by hand (Toban's cron knows L, LW, #)"
        )
    if upper.startswith("H") and (len(text) == 1 or text[1] in "/("):
        raise FieldError(f"{text!r} in the {field.name} is Jenkins's hash; write a number in its place")


def _item(field: Field, item: str, whole: str, pick: Pick) -> Written:
    body, slash, step_text = item.partition("/")
    step = _step(field, step_text, item) if slash else 1
    if body == "*":
        only = slash and step > field.high - field.low
        note = f"{item!r} in the {field.name} matches {field.low} only, since the step is larger than the field"
        return Written(f"*/{step}" if slash else "*", (note,) if only else ())
    if "~" in body:
        return _random(field, body, step if slash else 0, whole, pick)
    start_text, dash, end_text = body.partition("-")
    start = _number(field, start_text, item)
    if not dash:
        return _single(field, start, step) if slash else Written(str(start), _spelled(field, start_text))
    end = _number(field, end_text, item)
    notes = (*_spelled(field, start_text), *_spelled(field, end_text))
    if end < start:
        return _wrapped(field, start, end, step, item, notes)
    return Written(f"{start}-{end}" + (f"/{step}" if slash else ""), notes)


def _single(field: Field, start: int, step: int) -> Written:
    text = f"{start}-{field.high}/{step}"
    sunday = field.high == 7 and start < 7 and (7 - start) % step == 0
    without = f"; 7 is Sunday, {start}-6/{step} leaves it out" if sunday else ""
    note = (
        f"{start}/{step} in the {field.name}: Debian's cron and cronie refuse it, BusyBox takes it for {start} alone;"
        f" carried over as {text} (every {step} from {start} on): check whether you mean that{without}"
    )
    return Written(text, (note,))


def _wrapped(field: Field, start: int, end: int, step: int, item: str, notes: tuple[str, ...]) -> Written:
    high = 6 if field.high == 7 else field.high
    run = [*range(start, high + 1), *range(field.low, end + 1)][::step]
    note = f"{item!r} in the {field.name} goes over its end: vixie cron refuses it, BusyBox and dcron take it as carried over"
    return Written(",".join(map(str, run)), (*notes, note))


def _random(field: Field, body: str, step: int, whole: str, pick: Pick) -> Written:
    low_text, _, high_text = body.partition("~")
    low = _number(field, low_text, whole) if low_text else field.low
    high = _number(field, high_text, whole) if high_text else min(field.high, 6) if field.names == _DAYS else field.high
    if high < low:
        raise FieldError(f"{body!r} in the {field.name} ends before it begins; write the smaller number first")
    if step:
        offset = low + pick(f"{field.name} {body}/{step}", min(step, high - low + 1))
        text = f"{offset}-{high}/{step}"
    else:
        text = str(low + pick(f"{field.name} {body}", high - low + 1))
    note = f"random {field.name} {body}: cron draws another one each time it loads the file; carried over as {text}, drawn once from the line"
    return Written(text, (note,))


def _step(field: Field, text: str, item: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise FieldError(f"{item!r} in the {field.name} has no step from 1 on after the slash; write such as */5")
    return int(text)


def _number(field: Field, text: str, item: str) -> int:
    if text.isascii() and text.isdigit():
        value = int(text)
        if field.low <= value <= field.high:
            return value
        raise FieldError(f"{text} is not {_a(field)}; use {field.low} to {field.high}")
    lowered = text.lower()
    for place, name in enumerate(field.names):
        if lowered in (name[:3], name):
            return field.low + place
    where = f" (in {item!r})" if item != text else ""
    raise FieldError(f"{text!r}{where} is not {_a(field)}; {_allowed(field)}")


def _a(field: Field) -> str:
    return f"{'an' if field.name.startswith('h') else 'a'} {field.name}"


def _allowed(field: Field) -> str:
    names = f" or {field.names[0][:3]} to {field.names[-1][:3]}" if field.names else ""
    return f"use {field.low} to {field.high}{names}, with * , - /"


def _spelled(field: Field, text: str) -> tuple[str, ...]:
    long = text.lower() in field.names and len(text) > 3
    return (f"{text!r} is spelled out: cron takes three letters only; read as meant",) if long else ()
