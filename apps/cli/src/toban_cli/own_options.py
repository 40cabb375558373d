"""Mistakes that the site found in the fields of a request, by the options and arguments of the command that sent it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toban_domain.errors import TobanError

_PLACE = re.compile(r"(?:body|query|path)\.(.+)")
# Field of a request → the parameter of a command for it, where both have other names.
_OTHER_NAMES = {
    "event_type": ("of_type",),
    "states": ("state",),
    "jobs": ("job",),
    "labels": ("label",),
    "fields": ("field",),
    "events": ("event",),
    "ids": ("delivery",),
    "rate_per_minute": ("rate",),
    "scope_id": ("scope",),
    "active_from": ("since",),
    "active_until": ("until",),
    "scheduled_for": ("at",),
    "settings": ("value",),
    "user_id": ("user",),
}
# Texts of the validation of the site → those of a command line.
_TEXTS = (
    (re.compile(r"Field required"), "is empty; give a value"),
    (re.compile(r"String should have at least 1 character"), "is empty; give a value"),
    (re.compile(r"String should have at most (\d+) characters"), r"has more than \1 characters"),
    (re.compile(r"Input should be ('.*)"), r"use \1"),
    (re.compile(r"Input should be an object"), "give one JSON object"),
    (re.compile(r"Input should be "), "is not "),
)


def in_options(error: TobanError, params: Sequence[Any]) -> TobanError:
    """The same error, where a mistake in a field of the request has the option or argument of `params` for its place."""
    listed = error.detail.get("errors")
    if not isinstance(listed, list):
        return error
    found = [_in_option(one, params) for one in listed if isinstance(one, dict)]
    if found == listed:
        return error
    first = f"{found[0].get('path', '')}: {found[0].get('message', '')}"
    message = f"{first} (and {len(found) - 1} more)" if len(found) > 1 else first
    return TobanError(error.code, message, detail={**error.detail, "errors": found})


def _in_option(mistake: Mapping[str, Any], params: Sequence[Any]) -> dict[str, Any]:
    place = _PLACE.fullmatch(str(mistake.get("path", "")))
    if place is None:
        return dict(mistake)
    words = [word for word in place[1].split(".") if not word.isdigit()]
    # The innermost field that the command has a parameter for.
    named = (_parameter(word, params) for word in reversed(words))
    path = next(filter(None, named), ".".join(words))
    return {**mistake, "path": path, "message": _text(str(mistake.get("message", "")))}


def _parameter(field: str, params: Sequence[Any]) -> str:
    """`--kind`, or the name of an argument; "" without one."""
    for name in (field, *_OTHER_NAMES.get(field, ())):
        for param in params:
            if param.name == name:
                longest: str = max(param.opts, key=len) if param.param_type_name == "option" else param.metavar
                return longest.strip("[]")
    return ""


def _text(message: str) -> str:
    for pattern, text in _TEXTS:
        if pattern.match(message):
            return pattern.sub(text, message, count=1)
    return message
