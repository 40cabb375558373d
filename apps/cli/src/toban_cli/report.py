"""What the command prints: results on stdout, everything else on stderr.

All output passes through `sanitize` here: servers, jobs and file names may hold anything.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from toban_cli.sanitize import clean, clean_lines, cut_words, escaped
from toban_domain.access import TOKEN_PREFIX
from toban_domain.errors import ErrorCode, TobanError

# Characters of an argument that are shown in a message.
_LONGEST_ARGUMENT = 100
# API tokens and secrets of webhooks. No message means to have one; a library, a server or the arguments may put one there.
_SECRET = re.compile(rf"({TOKEN_PREFIX}|whsec_)[A-Za-z0-9_+/=-]+")


def wants_json(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> bool:
    """True when errors are to be JSON: --errors says so, else TOBAN_ERRORS, else -o json or yaml asks for data."""
    asked = _option(argv, "--errors") or (environ or {}).get("TOBAN_ERRORS", "")
    return asked == "json" if asked else _option(argv, "--output", "-o") in ("json", "yaml")


def error(problem: TobanError, *, as_json: bool) -> None:
    """One line `error: what. the remedy` (one each, when a document has several), or one JSON object."""
    if as_json:
        body = {
            "code": str(problem.code),
            "message": problem.message,
            "exit_code": problem.exit_code,
            "detail": problem.detail,
        }
        note(escaped(json.dumps({"error": body}, ensure_ascii=False, default=str)))
        return
    listed = problem.detail.get("errors")
    lines = [line for item in listed if (line := _listed(item))] if isinstance(listed, list) else []
    for line in lines or [problem.message]:
        note(f"error: {cut_words(clean(line))}")


def usage(message: str, *, as_json: bool, command: str = "toban") -> None:
    """A mistake in the arguments of `command`."""
    text = cut_words(" ".join(message.split()).rstrip("."), _LONGEST_ARGUMENT)
    if as_json:
        body = {"code": "USAGE", "message": text, "exit_code": 64, "detail": {"command": command}}
        note(escaped(json.dumps({"error": body}, ensure_ascii=False)))
    else:
        note(f"error: {text}{'' if text.endswith(('?', '!')) else '.'} See `{command} --help`")


def note(text: str) -> None:
    """A line on stderr (or several), without secrets."""
    sys.stdout.flush()
    try:
        sys.stderr.write(_SECRET.sub(r"\1...", clean_lines(text)) + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        # The reader of stderr has left (`2>&1 | head`): the work and the exit code do not depend on notes.
        _discard(2)


def drop_output() -> None:
    """Discards results from now on: their reader has left, or the disk that they were written to is full."""
    _discard(1)


def _discard(descriptor: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def unwritten(problem: OSError) -> TobanError:
    """The error for results that cannot be written; they are discarded from now on."""
    drop_output()
    return TobanError(
        ErrorCode.RESOURCE_EXHAUSTED,
        f"the output cannot be written ({problem.strerror}); make room there, or write it elsewhere",
    )


def echo(text: str, *, drawn: bool = False) -> None:
    """A line on stdout (or several). `drawn` text has colours of our own, and is clean but for these."""
    sys.stdout.write((text if drawn else clean_lines(text)) + "\n")
    sys.stdout.flush()


def data(value: Any) -> None:
    """A result as JSON on stdout."""
    echo(json_text(value))


def json_text(value: Any) -> str:
    """Data as JSON on several lines."""
    return escaped(json.dumps(value, indent=2, ensure_ascii=False))


def _listed(item: Any) -> str:
    if not isinstance(item, dict) or not item.get("message"):
        return ""
    where = ": ".join(str(item[key]) for key in ("source", "path") if item.get(key))
    hint = f"; {item['hint']}" if item.get("hint") else ""
    return f"{where}: {item['message']}{hint}" if where else f"{item['message']}{hint}"


def _option(argv: Sequence[str], *names: str) -> str:
    """The last value of an option, read without knowing the command; "" when it is not there."""
    found = ""
    for index, word in enumerate(argv):
        if word == "--":
            break
        for name in names:
            if word == name:
                found = "".join(argv[index + 1 : index + 2])
            elif word.startswith(name + "=") or (len(name) == 2 and word.startswith(name)):
                found = word[len(name) :].removeprefix("=")
    return found
