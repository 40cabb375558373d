"""Tells commands that hand a string to an interpreter from those that start a program: the former need `allow_shell: true`."""

from __future__ import annotations

from collections.abc import Sequence

_SHELLS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish", "ash", "csh", "tcsh", "busybox", "pwsh", "powershell"}
)
# Interpreters and the options with which they take their program as an argument.
_INLINE = {
    "python": frozenset({"-c"}),
    "perl": frozenset({"-e", "-E"}),
    "ruby": frozenset({"-e"}),
    "node": frozenset({"-e", "--eval", "-p", "--print"}),
    "nodejs": frozenset({"-e", "--eval", "-p", "--print"}),
    "php": frozenset({"-r"}),
    "lua": frozenset({"-e"}),
    "awk": frozenset[str](),
}
# Programs that start the program named by their arguments.
_WRAPPERS = frozenset(
    {"env", "nice", "nohup", "setsid", "timeout", "stdbuf", "ionice", "chrt", "taskset", "sudo", "xargs", "time"}
)


def shell_reason(argv: Sequence[str]) -> str:
    """Why this command counts as shell ("" = it does not): a shell, an interpreter with its program as an argument, or a wrapper of one."""
    for index, word in enumerate(argv):
        program = word.rsplit("/", 1)[-1]
        if program in _SHELLS:
            return f"{program} is a shell"
        options = _INLINE.get(program.rstrip("0123456789."))
        if options is not None:
            used = next((arg for arg in argv[index + 1 :] if _names_inline(arg, options)), None)
            return f"{program} {used} takes a program as an argument" if used else ""
        if program not in _WRAPPERS and (index == 0 or not _may_precede(argv[0], word)):
            return ""
    return ""


def _names_inline(arg: str, options: frozenset[str]) -> bool:
    """True for -c, and for -c behind other short options, as in -Ic."""
    if arg in options:
        return True
    short = {option[1] for option in options if len(option) == 2}
    return len(arg) > 1 and arg[0] == "-" and arg[1] != "-" and not short.isdisjoint(arg[1:]) and arg.isascii()


def _may_precede(first: str, word: str) -> bool:
    """True for what stands between a wrapper and its program: options, assignments, numbers."""
    wrapped = first.rsplit("/", 1)[-1] in _WRAPPERS
    return wrapped and (word.startswith("-") or "=" in word or word[:1].isdigit())
