"""Keeps secrets and line breaks out of log lines, whatever is passed to the logger."""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

MASK = "***"
SECRET_KEY = re.compile(
    r"password|passwd|secret|api_?key|access_?key|private_?key|incarnation_?key|token_value|credential|authorization|cookie|session_?id",
    re.IGNORECASE,
)
"""Names whose values are masked. A number named `token` is the fencing token, which operators need; see `_is_secret`."""
SECRET_EXACT = frozenset({"key", "pwd", "pass", "bearer", "signature"})
URL_CREDENTIALS = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.\-]*://)[^\s/@'\"]*@")
ASSIGNED = re.compile(
    # After these words a value needs a sign, since they stand in sentences too; after `Bearer` HTTP has a blank.
    r"(?i)\b(password|passwd|secret|token_value|api_?key|bearer)(\s*[=:]\s*|(?<=bearer)\s+)(\"[^\"]*\"|'[^']*'|[^\s,;&]+)"
)
MAX_DEPTH = 6


def mask_event(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor that masks values by their name, and credentials inside text."""
    for name in list(event):
        event[name] = _masked(name, event[name], MAX_DEPTH)
    return event


def mask_text(text: str) -> str:
    """`text` with the credentials of URLs and `password=…` pairs masked."""
    text = URL_CREDENTIALS.sub(rf"\g<scheme>{MASK}@", text)
    return ASSIGNED.sub(rf"\g<1>\g<2>{MASK}", text)


def one_line(text: str) -> str:
    """Control characters (CR, LF, ESC, …) as escapes, so that a value can neither forge a line nor steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def escape_event(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor for the console: every text value on one line, the traceback apart."""
    for name, value in event.items():
        if isinstance(value, str) and name != "exception":
            event[name] = one_line(value)
    return event


def _is_secret(name: str, value: Any) -> bool:
    if name.lower() == "token":
        return not isinstance(value, int)
    return name.lower() in SECRET_EXACT or SECRET_KEY.search(name) is not None


def _masked(name: str, value: Any, depth: int) -> Any:
    if _is_secret(name, value) and value not in (None, ""):
        return MASK
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, bool | int | float | None):
        return value
    if depth == 0:
        return MASK
    if isinstance(value, Mapping):
        return {str(key): _masked(str(key), item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked("", item, depth - 1) for item in value]
    return value if name == "exc_info" else mask_text(str(value))
