"""Converts arguments into text, numbers and choices without the validation library that Typer would load (150 ms a command).

Parameters of any other type keep what Typer gives them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, get_args, get_origin

import typer

Convert = Callable[[str], Any]
# The largest number of a run, an epoch or a version: they are stored in 64 bits.
LARGEST = 2**63 - 1
_NUMBERS: dict[type, str] = {int: "a whole number", float: "a number"}


def convert_plainly(params: list[Any]) -> list[Any]:
    """The same parameters: those of a simple type with a converter of ours, and a metavar for the help."""
    for param in params:
        converter = _Converter.of(param)
        if converter is None:
            continue
        param._runtime_param = converter
        if param.param_type_name == "option" and not param.is_flag and not param.metavar and converter.word:
            param.metavar = converter.word
    return params


class _Converter:
    """Converts the value, or each of the values, of one parameter."""

    def __init__(self, convert: Convert, word: str = "") -> None:
        self._convert = convert
        self.word = word

    @classmethod
    def of(cls, param: Any) -> _Converter | None:
        """The converter of a parameter; None when its type is not simple."""
        kind = param.type_descriptor.annotation
        if get_origin(kind) is list:
            (kind,) = get_args(kind)
        if kind is str:
            # Names of files are bytes.
            return cls(str if "FILE" in (param.metavar or "") else _text, "TEXT")
        if kind is bool:
            # Flags: the parser has made them true or false.
            return cls(bool)
        if kind in _NUMBERS:
            return cls(lambda word: _number(word, kind, param.min, param.max), "N")
        if isinstance(kind, type) and issubclass(kind, Enum):
            return cls(lambda word: _choice(word, kind))
        return None

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command gets it; raises a usage error that names the parameter."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self._convert(word) for word in value] if several else self._convert(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def _text(word: Any) -> str:
    text = str(word)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not text in UTF-8") from None
    return text


def _number(word: Any, kind: Any, low: float | None, high: float | None) -> Any:
    try:
        number = kind(word)
    except (ValueError, OverflowError):
        raise ValueError(f"{word!r} is not {_NUMBERS[kind]}") from None
    if number != number or (low is not None and number < low) or (high is not None and number > high):
        if high == LARGEST:
            # Only the bound that was exceeded: 19 digits do not help a user who typed 0.
            low, high = (None, high) if number > high else (low, None)
        raise ValueError(f"{word!r} is out of range, {allowed(low, high)}")
    return number


def allowed(low: float | None, high: float | None) -> str:
    """A range as text."""
    if low is not None and high is not None:
        return f"use {_digits(low)} … {_digits(high)}"
    if low is not None:
        return f"use {_digits(low)} or more"
    return f"use {_digits(high)} or less" if high is not None else "use a number"


def _digits(number: float) -> str:
    return f"{number:d}" if isinstance(number, int) else f"{number:g}"


def _choice(word: Any, kind: type[Enum]) -> Enum:
    if isinstance(word, kind):
        return word
    values = [str(member.value) for member in kind]
    if word in values:
        return kind(word)
    from toban_domain.nearest import nearest

    near = nearest(str(word), values)
    raise ValueError(f"{word!r} is not known, " + (f"did you mean {near}?" if near else f"use {', '.join(values)}"))
