"""What a line runs: flags and tags before the command, `%` as cron reads it, and the argv that Toban starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from toban_cli.importers.command_line import Invocation, program_or_shell
from toban_cli.importers.crontab.line_parser import BLANKS

_FLAGS = re.compile(r"-([nqs]+)(?:[ \t]+|$)")
_TAG = re.compile(r"(ID|AFTER|WAIT|FREQ)=([^ \t]+)(?:[ \t]+|$)")
# Standard input reaches the command as cron gives it; a variable, since arguments show in the list of processes.
STDIN_VARIABLE = "CRON_STDIN"
_WITH_STDIN = f'printf %s "${STDIN_VARIABLE}" | (unset {STDIN_VARIABLE}; exec "$0" -c "$1")'
MAX_STDIN = 4096


class CommandError(ValueError):
    """There is no command that can be carried over: why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The text for the shell, its standard input (None = empty), and what stood before it."""

    line: str
    stdin: str | None = None
    flags: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


def read_command(text: str) -> Command:
    """The command behind time and user; raises CommandError."""
    flags = ""
    while found := _FLAGS.match(text):
        flags += found[1]
        text = text[found.end() :]
    tags: dict[str, str] = {}
    while found := _TAG.match(text):
        tags[found[1]] = found[2]
        text = text[found.end() :]
    line, stdin = split_percent(text)
    line = line.strip(BLANKS)
    if not line:
        raise CommandError(
            "there is no command behind the time; cron refuses such a line too: write one or take the line out"
        )
    if stdin is not None and len(stdin) > MAX_STDIN:
        raise CommandError(
            f"its input after % is longer than {MAX_STDIN} characters; put it into a file and write < FILE"
        )
    return Command(line=line, stdin=stdin, flags=flags, tags=tags)


def split_percent(text: str) -> tuple[str, str | None]:
    r"""The command, and its standard input when there is a % that no backslash protects; a further % there is a line end, \% is %."""
    line, rest = _until_percent(text)
    if rest is None:
        return line, None
    data = re.sub(r"\\(.)|%", lambda found: _unescaped(found[0]), rest, flags=re.DOTALL)
    return line, data + "\n" if data and not data.endswith("\n") else data


def _unescaped(piece: str) -> str:
    return {"%": "\n", "\\%": "%"}.get(piece, piece)


def _until_percent(text: str) -> tuple[str, str | None]:
    out = []
    place = 0
    while place < len(text):
        pair = text[place : place + 2]
        if pair == "\\%":
            out.append("%")
            place += 2
        elif pair.startswith("\\"):
            out.append(pair)
            place += 2
        elif pair.startswith("%"):
            return "".join(out), text[place + 1 :]
        else:
            out.append(pair[0])
            place += 1
    return "".join(out), None


def invocation(command: Command, shell: str) -> Invocation:
    """How Toban starts it: the program itself when the line needs no shell, else the crontab's shell."""
    if command.stdin is not None:
        env = {STDIN_VARIABLE: command.stdin}
        how = f"its input after % goes through a pipe from ${STDIN_VARIABLE}"
        return Invocation(argv=("/bin/sh", "-c", _WITH_STDIN, shell, command.line), how=how, allow_shell=True, env=env)
    return program_or_shell(command.line, shell)
