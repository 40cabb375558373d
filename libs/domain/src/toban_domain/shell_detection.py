"""Detects commands that pass code to an interpreter instead of starting a program: they need `allow_shell: true`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toban_domain.template import MARK, is_literal

_SHELLS = frozenset("sh bash dash zsh ksh mksh fish csh tcsh ash rbash busybox pwsh".split())  # noqa: SIM905 (a list of words)


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """Letters of the options that take code or a file of it, that take a value, and that end the options; `words`: arguments that take code.

    Without such an option the argument number `place` is the code, or a file of it (0 = none is). With `anywhere`, options may follow arguments.
    """

    code: str
    value: str = ""
    end: str = ""
    words: frozenset[str] = frozenset()
    place: int = 1
    anywhere: bool = False


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
    "deno": _Interpreter("", words=frozenset({"eval"}), place=2),
}
# Their code is ordinary in a definition, where it needs no permission, but it can start programs: no value may become a part of it.
_LANGUAGES: Mapping[str, _Interpreter] = {
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk", "original-awk"),
        _Interpreter("feiEl", "vF", words=frozenset({"--file", "--source", "--exec", "--include", "--load"})),
    ),
    **dict.fromkeys(
        ("sed", "gsed"), _Interpreter("ef", "lE", words=frozenset({"--expression", "--file"}), anywhere=True)
    ),
    **dict.fromkeys(
        ("mysql", "mariadb"), _Interpreter("e", "DhPSu", words=frozenset({"--execute"}), place=0, anywhere=True)
    ),
    "psql": _Interpreter("cf", "dhpUvotFRTPL", words=frozenset({"--command", "--file"}), place=0, anywhere=True),
    "sqlite3": _Interpreter("", words=frozenset({"-cmd", "-init"}), place=2, anywhere=True),
    "expect": _Interpreter("cf"),
    "tclsh": _Interpreter(""),
    "make": _Interpreter("fIE", "jlo", words=frozenset({"--file", "--makefile", "--eval"}), place=0, anywhere=True),
    "tar": _Interpreter(
        "IF",
        "fCTXbg",
        words=frozenset(
            {
                "--checkpoint-action",
                "--to-command",
                "--use-compress-program",
                "--info-script",
                "--new-volume-script",
                "--rsh-command",
            }
        ),
        place=0,
        anywhere=True,
    ),
    "rsync": _Interpreter("e", "fBTM", words=frozenset({"--rsh", "--rsync-path"}), place=0, anywhere=True),
}
# `sh -o pipefail -c CODE`: the code is the first argument, whatever is before it.
_SHELL = _Interpreter("", "oO")


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """A program that starts the one named in its arguments: letters of its options that take code and that take a value, how many arguments
    are before the program, whether variables are, whether all arguments are joined to code, and options behind which a program is named."""

    code: str = ""
    value: str = ""
    operands: int = 0
    variables: bool = False
    joins: bool = False
    options: frozenset[str] = frozenset()


_WRAPPERS: Mapping[str, _Wrapper] = {
    "env": _Wrapper("S", "uC", variables=True),
    "nice": _Wrapper(value="n"),
    "ionice": _Wrapper(value="cnpPu"),
    "nohup": _Wrapper(),
    "setsid": _Wrapper(),
    "timeout": _Wrapper(value="ks", operands=1),
    "stdbuf": _Wrapper(value="ioe"),
    "time": _Wrapper(value="fo"),
    "xargs": _Wrapper(value="adEILnPs"),
    "sudo": _Wrapper(value="ugpCTrthDRU", variables=True),
    "doas": _Wrapper(value="uC"),
    "su": _Wrapper(joins=True),
    "chroot": _Wrapper(operands=1),
    "unshare": _Wrapper(value="RwSG"),
    "nsenter": _Wrapper(value="tSG"),
    "flock": _Wrapper("c", "wE", operands=1),
    "script": _Wrapper(joins=True),
    "watch": _Wrapper(joins=True),
    "chrt": _Wrapper(value="pTPD", operands=1),
    "taskset": _Wrapper(operands=1),
    "setpriv": _Wrapper(),
    "runuser": _Wrapper(joins=True),
    "parallel": _Wrapper(joins=True),
    "ssh": _Wrapper(joins=True),
    "find": _Wrapper(options=frozenset({"-exec", "-execdir", "-ok", "-okdir"})),
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")

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


def code_places(argv: Sequence[str]) -> frozenset[int]:
    """Which elements are a program, or code of one, so that a value put there could become a command. The first one always is.

    Known are shells, interpreters, languages that can start programs, and wrappers; the command that a wrapper starts is judged likewise.
    """
    if not argv:
        return frozenset()
    name = _base(argv[0])
    found = [0]
    if wrapper := _WRAPPERS.get(name):
        found += _wrapped_places(wrapper, argv)
    elif name in _SHELLS:
        found += _places(_SHELL, argv)
    elif interpreter := _by_prefix(_INTERPRETERS, name) or _LANGUAGES.get(name):
        found += _places(interpreter, argv)
    return frozenset(at for at in found if at < len(argv))


def templates_in_code(argv: Sequence[str]) -> list[int]:
    """The elements among `code_places` that have a reference to a value."""
    return [at for at in sorted(code_places(argv)) if MARK in argv[at] and not is_literal(argv[at])]


def _places(interpreter: _Interpreter, argv: Sequence[str]) -> Iterator[int]:
    """The code that options take; without one, the argument that is code; and values that could be such an option."""
    code, end = _options(argv, interpreter)
    yield from code
    if interpreter.place and not code:
        yield end + interpreter.place - 1
    if interpreter.anywhere and argv[end - 1] != "--":
        last = argv.index("--", end) if "--" in argv[end:] else len(argv)
        yield from (at for at in range(end, last) if argv[at].startswith(MARK))


def _wrapped_places(wrapper: _Wrapper, argv: Sequence[str]) -> Iterator[int]:
    """The code that its own options take, and what counts in the command that it starts."""
    if wrapper.joins:
        yield from range(1, len(argv))
        return
    starts = [at + 1 for at, word in enumerate(argv) if word in wrapper.options]
    if not wrapper.options:
        code, at = _options(argv, _Interpreter(wrapper.code, wrapper.value))
        yield from code
        at += wrapper.operands
        while wrapper.variables and at < len(argv) and _VARIABLE.match(argv[at]):
            at += 1
        starts = [at]
    for start in starts:
        yield from (start + place for place in code_places(argv[start:]))


def _options(argv: Sequence[str], interpreter: _Interpreter) -> tuple[list[int], int]:
    """Elements with the code that options take, or with an option that is a template, and the first element behind all options."""
    code: list[int] = []
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        word = argv[at]
        at += 1
        if word == "--":
            break
        name, _, value = word.partition("=")
        if MARK in name:
            code.append(at - 1)
        kind, own = "", ""
        if name in interpreter.words:
            kind, own = "code", value
        elif not word.startswith("--"):
            kind, own = _short(word, interpreter)
        if kind:
            code += [at - 1 if own else at] if kind != "value" else []
            at += 0 if own else 1
    return code, at


def _short(word: str, interpreter: _Interpreter) -> tuple[str, str]:
    """What the letters of an option take ("code", "end", "value" or ""), and the part of it that is in the same argument."""
    kinds = (("code", interpreter.code), ("end", interpreter.end), ("value", interpreter.value))
    for place, letter in enumerate(word[1:], start=2):
        for kind, letters in kinds:
            if letter in letters:
                return kind, word[place:]
    return "", ""


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _by_prefix(known: Mapping[str, _Interpreter], name: str) -> _Interpreter | None:
    return next((item for start, item in known.items() if name.startswith(start)), None)


def _code_option(name: str, arguments: Sequence[str]) -> str:
    """The option that passes code to this interpreter; "" when there is none."""
    interpreter = _by_prefix(_INTERPRETERS, name)
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
            kind, own = _short(argument, interpreter)
            if kind in ("code", "end"):
                return argument if kind == "code" else ""
            value_follows = kind == "value" and not own
    return ""


def django_reason(command: str) -> str:
    """Why this management command counts as shell ("" = it does not): it runs code that it is given."""
    return f"{command} runs code that it is given" if command in _DJANGO_SHELLS else ""
