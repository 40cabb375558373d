"""Names of jobs from their commands: the same line gets the same name at each import."""

from __future__ import annotations

import hashlib
import re

# Words before the one that a person would call the command.
_WRAPPERS = frozenset(
    """nice ionice nohup timeout sudo env flock chronic setsid time exec command test cd [ if then && || ; { ( ! run-one cronitor
    systemd-cat stdbuf chpst chrt taskset lockrun solo setlock cronic sh bash dash ksh zsh ash python python3 python2 perl ruby php
    node java""".split()  # noqa: SIM905 (a list of words)
)
_SUFFIX = re.compile(r"\.(?:sh|py|pl|rb|php|js|bash|ksh|jar|bin|cgi)$")
# Parts of a line that only test, wait, or change the folder.
_PREPARES = re.compile(
    r"[\s({]*(?:then\s+)?(?:if\s+)?(?:/usr/bin/|/bin/)?"
    r"(?:cd|test|\[|\[\[|sleep|command|\.|source|export|umask|true|fi|done|set|perl\s+-e\s+'sleep)(?:\s|$)"
)
# Names of programs that are unclear without their folder.
_GENERIC = frozenset(("cron", "main", "index", "run", "start", "job", "script", "task", "update"))
_MAX_SLUG = 48
_MAX_WORDS = 3
_MAX_NAME = 128


class Names:
    """Gives each line a name of its own: the first one of a kind the plain name, later ones a mark of their content."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._given: set[str] = set()

    def name(self, wanted: str, content: str) -> str:
        """`wanted` is what to call it, `content` what makes it differ from others of that name."""
        plain = f"{self._prefix}{slug(wanted)}"[:_MAX_NAME].rstrip("-._")
        name, round_ = plain, 0
        while name in self._given:
            mark = hashlib.sha256(f"{content}\0{round_ or ''}".encode()).hexdigest()[:6]
            name, round_ = f"{plain[: _MAX_NAME - 7]}-{mark}", round_ + 1
        self._given.add(name)
        return name


def slug(text: str) -> str:
    """Letters, digits and single dashes; "job" when nothing is left."""
    made = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return made[:_MAX_SLUG].rstrip("-") or "job"


def title(command: str) -> str:
    """What a person would call a command: its program and first arguments, without wrappers, options and redirections."""
    last = _last_part(command)
    words = [word for word in re.split(r"[\s'\"]+", last) if word]
    kept: list[str] = []
    for word in words:
        if word[0] in "<>|&;#" or re.match(r"\d*[<>]", word):
            break
        if not kept and _wraps(word):
            continue
        if kept and word.startswith("-"):
            continue
        kept.append(_short(word) if kept else _program(word))
        if len(kept) == _MAX_WORDS:
            break
    return " ".join(kept)


def _last_part(command: str) -> str:
    """The part of `cd /x && test -x y && real command | filter` that does the work."""
    first_pipe = re.split(r"(?<!\|)\|(?!\|)", command)[0]
    parts = [part for part in re.split(r"&&|\|\||;", first_pipe) if part.strip(" (){}")]
    return next((part for part in parts if not _PREPARES.match(part)), (parts or [command])[0])


def _wraps(word: str) -> bool:
    base = word.lstrip("({").rpartition("/")[2]
    # Options and their values of wrappers, and assignments before the program.
    return (
        not base
        or base in _WRAPPERS
        or word.startswith("-")
        or "=" in word
        or word.lstrip("-+").rstrip("smhd%").isdigit()
    )


def _program(word: str) -> str:
    name = _short(word)
    folder = word.rstrip("/").rpartition("/")[0].rpartition("/")[2]
    return f"{folder} {name}" if name in _GENERIC and re.search(r"\w", folder) and folder != "bin" else name


def _short(word: str) -> str:
    """The last part of a path, without its ending."""
    return _SUFFIX.sub("", word.rstrip("/").rpartition("/")[2])
