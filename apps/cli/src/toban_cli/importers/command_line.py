"""A line for a shell as the argv that Toban starts: the program itself when the line needs no shell, else the shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from toban_domain.shell_detection import shell_reason

# With any of these outside quotes a line needs a shell.
_SHELL_CHARACTERS = frozenset("|&;<>()$`\\*?[]#~!{}=%")
# Words that only a shell knows, as the first word of a line.
_SHELL_WORDS = frozenset(
    """. : [[ alias bg break case cd command continue declare do done elif else esac eval exec exit export false fi for function hash
    if in jobs let local popd pushd read readonly return select set shift source then time times trap true type typeset ulimit umask
    unalias unset until wait while""".split()  # noqa: SIM905 (a list of words)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The command of a step. `how` is the way that was taken."""

    argv: tuple[str, ...]
    how: str
    allow_shell: bool = False
    env: Mapping[str, str] = field(default_factory=dict)


def program_or_shell(line: str, shell: str) -> Invocation:
    """How Toban starts a line that was written for `shell`."""
    words, why = plain_words(line)
    if words is None:
        return Invocation(argv=(shell, "-c", line), how=f"by {shell} ({why})", allow_shell=True)
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
