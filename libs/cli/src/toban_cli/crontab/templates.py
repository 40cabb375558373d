"""Lines of a template (Jinja, Ansible, ERB, Python, autoconf, envsubst), which is no crontab before it is filled in."""

from __future__ import annotations

import re

from toban_cli.crontab.line_parser import BLANKS, Kind, Line

# Marks that mean a template wherever they stand. Of Jinja only names, with filters, and not what Go's templates have too:
# `docker ps --format '{{.Names}}'` is a command. A backslash before % makes it the command's own.
_ANYWHERE = re.compile(
    r"\{\{-?[ \t]*(?!(?:end|else)\b)[A-Za-z_]\w*(?:\.\w+|\[[^\]]{0,80}\])*[ \t]*(?:\|[^}]{0,200})?-?\}\}"
    r"|\{%[-+]?[ \t]+\w.{0,200}?%\}|<%[=# \t-].{0,200}?%>|(?<!\\)%\(\w+\)[sdri]|@@\w+@@|@[A-Z][A-Z0-9_]+@"
)
# Marks that mean one where a time should be.
_IN_TIME = re.compile(
    r"\{\{.*?(?:\}\}|$)|\{[%#].*?(?:[%#]\}|$)|<%.*?(?:%>|$)|\[%.*?(?:%\]|$)|\$\{?\w+\}?|__\w{1,60}__|<[A-Za-z]\w*>|%\w+%"
)
# The words that hold the time: five fields, or one @word.
_FIELDS = re.compile(r"@[^ \t]*|(?:[^ \t]+[ \t]*){1,5}")
_SHOWN = 40


def template_reason(line: Line) -> str:
    """Why a line of a template cannot be carried over, and what to do; "" when it is none."""
    text = line.text.strip(BLANKS)
    mark = _mark(text, has_time=line.kind is Kind.JOB)
    if not mark:
        return ""
    shown = mark if len(mark) <= _SHOWN else f"{mark[: _SHOWN - 1]}…"
    return (
        f"it is a line of a template: {shown!r} is a placeholder or directive; fill in the template first and import the"
        " result, such as the output of `crontab -l` on a machine that has it"
    )


def _mark(text: str, *, has_time: bool) -> str:
    if found := _ANYWHERE.search(text):
        return found[0]
    fields = _FIELDS.match(text) if has_time else None
    found = _IN_TIME.search(text) if fields else None
    return found[0] if found and fields and found.start() < fields.end() else ""
