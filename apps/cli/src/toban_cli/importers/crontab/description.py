"""The description of a job: the comments right above its line, without what is no description of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from toban_cli.importers.crontab.line_parser import BLANKS

_LONGEST = 1000
_NUMBERS = r"[\d*][\d*,/~-]*[ \t]+"
_ANY_FIELD = r"(?:[\d*?LHW][\w*,/~#?()-]*|(?:sun|mon|tue|wed|thu|fri|sat|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[\w,/-]*)"
# A job that was commented out, perhaps behind a word and a colon ("OLD: 0 3 * * * x").
_OLD_JOB = re.compile(
    rf"(?:[\w ./-]{{1,30}}:[ \t]*)?-?[ \t]*(?:{_NUMBERS}{_NUMBERS}{_ANY_FIELD}[ \t]+{_ANY_FIELD}[ \t]+{_ANY_FIELD}(?:[ \t]|$)"
    r"|@(?:reboot|yearly|annually|monthly|weekly|daily|midnight|hourly|every_minute|every[ \t]+\d\w*|\d+)[ \t]+\S)",
    re.IGNORECASE,
)
_OLD_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=|[A-Z_]{2,}[ \t]+=")
# Names of columns; a heading has nothing else, and at least three of the first kind.
_COLUMNS = frozenset("m min mins minute minutes h hr hour hours dom mday day mon month dow wday weekday week".split())  # noqa: SIM905
_BESIDE_COLUMNS = frozenset(
    "d mo of the a s sec second seconds y year user username name who account flags command cmd to be run executed".split()  # noqa: SIM905
)
# The drawing that explains the columns: lines that lead to "minute (0 - 59)".
_LEGEND = re.compile(
    r"[|┌├└│╭╰]|[.+`][-─]{2,}|"
    r"\W*(?:minutes?|mins?|hours?|days?(?: of (?:the )?(?:month|week))?|months?|dom|mon|dow|weekday)\b[^a-z]*?"
    r"\b(?:0?0 ?[-–] ?(?:59|23|6|7)|0?1 ?[-–] ?(?:31|12|7))\b",
    re.IGNORECASE,
)
# Sentences of cron, of distributions and of programs that write crontabs, each by its beginning or its mark.
_STOCK = re.compile(
    r".*\b(?:do not|don't) edit\b|.*\bedit the master and reinstall|"
    r"\((?:/\S+ installed on|cron(?:ie)? version)\b|/etc/(?:ana)?cron\S*(?::| -) |.*\$[A-Z][A-Za-z]+(?::[^$]*)?\$|ident[ \t]+\"|"
    r"(?:vim?|ex):|-\*-.*-\*-|HEADER:|(?:begin|end)\b.*\b(?:managed|whenever generated)\b|ansible managed|"
    r".*\bauto(?:matically)?[ -]?(?:generated|managed)\b|(?:generated|managed|created|written) (?:by|with)\b|"
    r"(?:th(?:is|ese|e) |all )?(?:cron ?)?(?:file|tab|job|line|section)s?\b.*\b(?:managed|generated|maintained|written) (?:by|with|from)\b|"
    r".*\bcrontabs?\(\d\)|.*\bcron\(8\)|.*\bman (?:\d )?crontabs?\b|example of job definition|"
    r"edit this file to introduce tasks|each task to run has to be defined|indicating with different fields when|"
    r"and what command to run for the task|to define the time you can provide|minute \(m\), hour \(h\)|and day of week \(dow\)|"
    r"notice that tasks will be started|daemon's notion of time|output of the crontab jobs|email to the user the crontab|"
    r"\{[{%#].*[}%#]\}$|<%.*%>$|"
    r"for example, you can run a backup|at 5 a\.m every week|unlike any other crontab|command to install the new version|"
    r"and files in /etc/cron\.d|that none of the other crontabs do|you can also override PATH",
    re.IGNORECASE,
)
_RULER_BEFORE = re.compile(r"[-=#*~_+]{2,}[ \t]*")
_RULER_BEHIND = re.compile(r"(?:[ \t]+[-=#*~_+]{2,}|[-=#*~_]{3,})$")


def description(comments: Sequence[str]) -> str:
    """The description of the job below the comments; "" when there is nothing.

    A heading of columns, an old job or an old assignment among them ends what stands above: that belongs to it.
    """
    kept: list[str] = []
    for comment in comments:
        text = comment.strip(BLANKS).lstrip("#").strip(BLANKS)
        if _ends_what_is_above(text):
            kept.clear()
        elif not _STOCK.match(text):
            kept.append(
                _RULER_BEHIND.sub("", _RULER_BEFORE.sub("", text, count=1) if _RULER_BEFORE.match(text) else text)
            )
    printable = ("".join(char if char.isprintable() else " " for char in text) for text in kept)
    return " ".join(text for text in printable if re.search(r"\w", text))[:_LONGEST]


def _ends_what_is_above(text: str) -> bool:
    patterns = (_OLD_JOB, _OLD_ASSIGNMENT, _LEGEND)
    return any(pattern.match(text) for pattern in patterns) or _is_heading(text)


def _is_heading(text: str) -> bool:
    words = re.findall(r"[a-z]+", text.lower())
    columns = sum(word in _COLUMNS for word in words)
    return columns >= 3 and all(word in _COLUMNS or word in _BESIDE_COLUMNS for word in words)
