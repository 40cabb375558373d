"""Detects commands that pass code to an interpreter instead of starting a program: they need `allow_shell: true`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SHELLS = frozenset("sh bash dash zsh ksh mksh fish csh tcsh ash rbash busybox pwsh".split())  # noqa: SIM905 (a list of words)
# Programs that start the program named in their arguments.
_WRAPPERS = frozenset(
    """env nice ionice nohup setsid timeout stdbuf time xargs sudo doas su chroot unshare nsenter flock script watch chrt
    taskset setpriv runuser parallel find""".split()  # noqa: SIM905 (a list of words)
)


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """Letters of the options that take code, that take a value, and that end the options; and `words`: arguments that take code."""

    code: str
    value: str = ""
    end: str = ""
    words: frozenset[str] = frozenset()


# Matched by prefix, so that python3.11 is python.
_INTERPRETERS: Mapping[str, _Interpreter] = {
    "python": _Interpreter("c", "WX", "m"),
    "pypy": _Interpreter("c", "WX", "m"),
    "perl": _Interpreter("eE", "IMm"),
    "ruby": _Interpreter("e", "IrC"),
    "node": _Interpreter("ep", "r", words=frozenset({"--eval", "--print"})),
    "php": _Interpreter("rBRE", "dc"),
    "lua": _Interpreter("e", "l"),
    "Rscript": _Interpreter("e"),
    "deno": _Interpreter("", words=frozenset({"eval"})),
}

_CODE_WORDS = frozenset(word for item in _INTERPRETERS.values() for word in item.words)

# Modules with functions that start programs, execute code, or call functions given by name. Without leading underscores.
_CODE_MODULES = frozenset(
    """asyncio bdb builtins cProfile cgitb code codeop commands concurrent ctypes distutils doctest ensurepip frozen_importlib
    frozen_importlib_external idlelib imaplib imp importlib lib2to3 logging mailcap multiprocessing nt os pdb pip pipes pkgutil popen2 posix
    posixsubprocess posixshmem profile pstats pty pydoc rlcompleter runpy setuptools site subprocess test testcapi testinternalcapi timeit trace
    turtledemo types unittest venv webbrowser winapi xxsubinterpreters zipapp zipimport""".split()  # noqa: SIM905 (a list of words)
)
_DJANGO_SHELLS = ("dbshell", "shell", "shell_plus")


def callable_reason(name: str) -> str:
    """Why calling "module:function" with the payload counts as shell ("" = it does not).

    Checks the top-level package and each name between the module and the function: imported modules are attributes of a module
    (`shutil:os.system`). Submodules are not checked: `shop.commands:send` is the shop's own. Imports under another name are not visible
    here; the executor checks the resolved function.
    """
    module, _, path = name.partition(":")
    for word in (module.partition(".")[0], *path.split(".")[:-1]):
        if word.strip("_") in _CODE_MODULES:
            return f"module {word} can start programs or execute arbitrary code"
    return ""


def shell_reason(argv: Sequence[str]) -> str:
    """Why this command counts as shell ("" = it does not): a shell, an interpreter with code as an argument, or a wrapper of one."""
    if not argv:
        return ""
    wrapped = _base(argv[0]) in _WRAPPERS
    for index in range(len(argv) if wrapped else 1):
        name = _base(argv[index])
        if name in _SHELLS:
            return f"{name} is a shell"
        if option := _code_option(name, argv[index + 1 :]):
            return f"{name} {option} takes code as an argument"
    return ""


def first_argument(argv: Sequence[str]) -> int:
    """From which element on the words of a shell command are arguments of its code, and not code themselves; 0 = it is none.

    The code is the first word behind the shell that is no option, or a file that has it.
    """
    wrapped = bool(argv) and _base(argv[0]) in _WRAPPERS
    for index in range(len(argv) if wrapped else min(1, len(argv))):
        name = _base(argv[index])
        if name in _SHELLS or _code_option(name, argv[index + 1 :]):
            words = [at for at in range(index + 1, len(argv)) if not argv[at].startswith("-")]
            # "deno eval CODE": a word before the code.
            skipped = 1 if words and argv[words[0]] in _CODE_WORDS else 0
            return words[skipped] + 1 if len(words) > skipped else len(argv)
    return 0


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _code_option(name: str, arguments: Sequence[str]) -> str:
    """The option that passes code to this interpreter; "" when there is none."""
    interpreter = next((item for start, item in _INTERPRETERS.items() if name.startswith(start)), None)
    if interpreter is None:
        return ""
    value_follows = False
    for argument in arguments:
        if value_follows:
            value_follows = False
        elif argument.partition("=")[0] in interpreter.words:
            return argument
        elif not argument.startswith("-") or argument in ("-", "--"):
            return ""
        elif not argument.startswith("--"):
            for place, letter in enumerate(argument[1:], start=2):
                if letter in interpreter.code:
                    return argument
                if letter in interpreter.end:
                    return ""
                if letter in interpreter.value:
                    value_follows = place == len(argument)
                    break
    return ""


def django_reason(command: str) -> str:
    """Why this management command counts as shell ("" = it does not): it runs code that it is given."""
    return f"{command} runs code that it is given" if command in _DJANGO_SHELLS else ""
