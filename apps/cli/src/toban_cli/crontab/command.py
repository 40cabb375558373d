"""What a line runs: flags and tags before the command, `%` as cron reads it, and the argv that Toban starts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from toban_cli.crontab.line_parser import BLANKS
from toban_domain.shell_detection import shell_reason

# With any of these outside quotes a line needs a shell.
_SHELL_CHARACTERS = frozenset("|&;<>()$`\\*?[]#~!{}=%")
# Words that only a shell knows, as the first word of a line.
_SHELL_WORDS = frozenset(
    """. : [[ alias bg break case cd command continue declare do done elif else esac eval exec exit export false fi for function hash
    if in jobs let local popd pushd read readonly return select set shift source then time times trap true type typeset ulimit umask
    unalias unset until wait while""".split()  # noqa: SIM905 (a list of words)
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The command of a step. `how` is the way that was taken."""

    argv: tuple[str, ...]
    how: str
    allow_shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


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
    words, why = plain_words(command.line)
    if words is None:
        return Invocation(argv=(shell, "-c", command.line), how=f"by {shell} ({why})", allow_shell=True)
    reason = shell_reason(words)
    how = f"as a program with arguments{f', allow_shell since {reason}' if reason else ', without a shell'}"
    return Invocation(argv=tuple(words), how=how, allow_shell=bool(reason))


def plain_words(line: str) -> tuple[list[str] | None, str]:
    """The words of a line that means the same without a shell; (None, why it needs one) otherwise."""
    found = _needs_shell(line)
    if found:
        return None, f"it has {found}"
    try:
        words = shlex.split(line, posix=True)
    except ValueError:
        return None, "its quotes are the shell's business"
    if not words or not words[0].strip():
        return None, "it has no program"
    if words[0] in _SHELL_WORDS:
        return None, f"{words[0]!r} is a word of the shell"
    return words, ""


def _needs_shell(line: str) -> str:
    """What only a shell can read, "" when there is nothing."""
    quote = ""
    for character in line:
        if quote:
            if character == quote:
                quote = ""
            elif quote == '"' and character in "$`\\!":
                return f"{character} within quotes"
        elif character in "'\"":
            quote = character
        elif character in _SHELL_CHARACTERS:
            return character
        elif character in "\r\f\v" or not (character.isprintable() or character == "\t"):
            return "a control character"
    return "a quote without its end" if quote else ""
