"""What the command says: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from toban_domain.errors import TobanError


def wants_json(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> bool:
    """True when errors are to be JSON: --errors says so, else TOBAN_ERRORS, else data was asked for with -o json or yaml."""
    asked = _option(argv, "--errors") or (environ or {}).get("TOBAN_ERRORS", "")
    return asked == "json" if asked else _option(argv, "--output", "-o") in ("json", "yaml")


def error(problem: TobanError, *, as_json: bool) -> None:
    """One line `error: what. how to mend` (one each, when a document has several), or one JSON object."""
    if as_json:
        told = {
            "code": str(problem.code),
            "message": problem.message,
            "exit_code": problem.exit_code,
            "detail": problem.detail,
        }
        note(json.dumps({"error": told}, ensure_ascii=False, default=str))
        return
    listed = problem.detail.get("errors")
    lines = [line for item in listed if (line := _listed(item))] if isinstance(listed, list) else []
    for line in lines or [problem.message]:
        note(f"error: {line}")


def usage(message: str, *, as_json: bool, command: str = "toban") -> None:
    """A mistake in the arguments of `command`."""
    text = " ".join(message.split()).rstrip(".")
    if as_json:
        told = {"code": "USAGE", "message": text, "exit_code": 64, "detail": {"command": command}}
        note(json.dumps({"error": told}, ensure_ascii=False))
    else:
        note(f"error: {text}{'' if text.endswith(('?', '!')) else '.'} See `{command} --help`")


def note(text: str) -> None:
    """A line on stderr."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say(text: str) -> None:
    """A line on stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def data(value: Any) -> None:
    """A result as JSON on stdout."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


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
