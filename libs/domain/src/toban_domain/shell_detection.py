"""Detects commands that pass code to an interpreter instead of starting a program: they need `allow_shell: true`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from toban_domain import known_programs as known
from toban_domain import program_options as options
from toban_domain.template import MARK, is_literal

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# How many commands within one are judged; with more, every word counts as code.
_MOST_COMMANDS = 50

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
    wrapped = _base(argv[0]) in known.WRAPPERS
    for index in range(len(argv) if wrapped else 1):
        name = _base(argv[index])
        if name in known.SHELLS:
            return f"{name} is a shell"
        if option := _code_option(name, argv[index + 1 :]):
            return f"{name} {option} takes code as an argument"
    return ""


class Place(Enum):
    """What an element of argv is: what is wrong with a value there, and the remedy."""

    PROGRAM = (
        "may be a program, which a value cannot name",
        "name the program; write options before it as --option=value, or with a program of your own",
    )
    CODE = (
        "is code, where a value could become a command",
        f'pass the value behind the code: [sh, -c, \'echo "$1"\', sh, "{MARK} payload.name }}}}"], or to a program of your own',
    )
    OPTION = (
        "could become an option that takes code",
        'put "--" before it, or "./" in front of it if it is a path; write options themselves out',
    )

    @property
    def problem(self) -> str:
        return self.value[0]

    @property
    def remedy(self) -> str:
        return self.value[1]


def code_places(argv: Sequence[str]) -> Mapping[int, Place]:
    """Which elements are a program, code of one or could be an option that takes some, so that a value put there could become a command.

    The first one always is. Known are shells, interpreters, languages that can start programs, and wrappers; the command that a wrapper
    starts is judged likewise, as is each shell or interpreter that it names anywhere.
    """
    found: dict[int, Place] = {}
    commands = [0]
    wrapped = False
    while commands:
        start = commands.pop()
        if start >= len(argv) or found.get(start) is Place.PROGRAM:
            continue
        found[start] = Place.PROGRAM
        name = _base(argv[start])
        program = known.find(name)
        if program is None:
            continue
        wraps = known.wraps(name)
        if wraps and len(found) > _MOST_COMMANDS:
            return dict.fromkeys(range(len(argv)), Place.CODE)
        for at, place in _places(name, program, argv, start):
            if place is Place.PROGRAM:
                commands.append(at)
            elif at < len(argv):
                found.setdefault(at, place)
        if wraps and not wrapped:
            wrapped = True
            commands += (at for at in range(start + 1, len(argv)) if _is_shell(_base(argv[at])))
    return found


def templates_in_code(argv: Sequence[str]) -> Mapping[int, Place]:
    """The elements among `code_places` that have a reference to a value."""
    places = code_places(argv) if any(MARK in word for word in argv) else {}
    return {at: places[at] for at in sorted(places) if MARK in argv[at] and not is_literal(argv[at])}


def _places(name: str, program: options.Program, argv: Sequence[str], start: int) -> Iterator[tuple[int, Place]]:
    """What counts among the arguments of the program at `start`. PROGRAM is the start of a command, which is to be judged itself.

    An option that is not known may have a value: the word behind it is taken both for that and for an argument.
    """
    if program.joins:
        yield from ((at, Place.CODE) for at in range(start + 1, len(argv)))
        return
    # How many arguments there may have been, and those that may be at `place`, with whether they could be an option.
    counts = {0}
    candidates: list[tuple[int, bool]] = []
    unsure = ended = coded = False
    at = start + 1
    while at < len(argv):
        here, word = at, argv[at]
        at += 1
        if not ended and word == "--":
            ended = True
        elif not ended and program.is_option(word):
            kind, own = program.option(word, MARK)
            coded |= kind == options.CODE
            unsure = kind == options.UNKNOWN and not own
            if kind in _PLACE_OF:
                yield here if own or kind == options.MADE else at, _PLACE_OF[kind]
            if kind == options.END or (kind == options.CODE and program.ends):
                break
            at += 0 if own or kind in (options.UNKNOWN, options.MADE) else len(kind)
        elif 0 in counts and (inner := known.verb(name, word)):
            yield from _places(f"{name} {word}", inner, argv, here)
            break
        elif not (program.variables and _VARIABLE.match(word)):
            counts = {count + 1 for count in counts} | (counts if unsure else set())
            unsure = False
            could_be_option = not ended and word.startswith(MARK)
            if program.place in counts and (program.starts or not coded):
                candidates.append((here, could_be_option))
            elif could_be_option and (program.anywhere or coded):
                yield here, Place.OPTION
            if program.place and min(counts) >= program.place and (program.starts or not program.anywhere):
                break
    for here, could_be_option in candidates:
        if program.starts:
            yield here, Place.PROGRAM
        elif not (coded and program.anywhere):
            yield here, Place.CODE
        elif could_be_option:
            yield here, Place.OPTION


_PLACE_OF: Mapping[str, Place] = {
    **dict.fromkeys((options.CODE, options.ALSO, options.END), Place.CODE),
    options.COMMAND: Place.PROGRAM,
    options.MADE: Place.OPTION,
}


def _is_shell(name: str) -> bool:
    plain = known.without_version(name)
    return plain in known.SHELLS or plain in known.INTERPRETERS


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _code_option(name: str, arguments: Sequence[str]) -> str:
    """The option that passes code to this interpreter; "" when there is none."""
    interpreter = known.interpreter(name)
    if interpreter is None:
        return ""
    value_follows = False
    for argument in arguments:
        if value_follows:
            value_follows = False
        elif not interpreter.is_option(argument) or argument == "--":
            return ""
        else:
            kind, own = interpreter.option(argument, MARK)
            if kind in (options.CODE, options.END):
                return argument if kind == options.CODE else ""
            value_follows = kind in (options.ALSO, options.VALUE) and not own
    return ""


def django_reason(command: str) -> str:
    """Why this management command counts as shell ("" = it does not): it runs code that it is given."""
    return f"{command} runs code that it is given" if command in _DJANGO_SHELLS else ""
