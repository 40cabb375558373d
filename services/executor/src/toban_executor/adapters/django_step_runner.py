"""The program of a step `type: django`: runs a management command with the payload as its options, as manage.py would.

Run as a file by the interpreter of the project, Python 3.10 or newer. Standard library and Django only.

Usage: python django_step_runner.py PROJECT SETTINGS COMMAND ARGUMENTS    (a folder; a module, may be empty; a name; a JSON list)

The payload is in TOBAN_PAYLOAD_FILE. Exit code 0 when the command returns, that of CommandError (1) with its text on stderr, 1 with the traceback
when it raises anything else.
"""

from __future__ import annotations

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VARIABLE = "DJANGO_SETTINGS_MODULE"
_NOT_OF_A_STEP = ("help", "version", "settings", "pythonpath", "skip_checks")
# Commands with their parsers, made before the fork.
_prepared: dict[str, tuple[Any, Any]] = {}
_NEGATIVE = re.compile(r"-\d+(\.\d*)?|-\.\d+")
_IN_MANAGE = re.compile(_VARIABLE + r"""["']\s*,\s*["']([\w.]+)["']""")


class NotRunnableError(Exception):
    """The command cannot be run; the message says what is wrong, where."""


def prepare(arguments: list[str]) -> None:
    """In a zygote (warm_zygote.py): set Django up, import, and close what a fork must not share.

    `arguments`: project, settings, and either `command` and its name, or `modules` and their names.
    """
    project, settings, kind, *names = arguments
    _set_up(project, settings)
    from django.core.management import BaseCommand

    # Not used, but half of what the first parser of a process costs is done once.
    BaseCommand().create_parser("manage.py", "").parse_args([])
    for name in names:
        if kind == "command":
            _prepared[name] = _command(name)
        else:
            __import__(name)
    from django.core.cache import caches
    from django.db import connections

    # A fork must not write to the sockets of another process.
    connections.close_all()
    caches.close_all()


def main(project: str, settings: str, name: str, arguments: str) -> int:
    """Exit code of the step."""
    sys.argv = ["manage.py", name]
    # A pipe is block buffered: lines and progress markers would come late.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        _set_up(project, settings)
    except NotRunnableError as error:
        return _print_error(f"django command {name!r}: {error}")
    except ImportError as error:
        if error.name != "django":
            raise
        return _print_error(f"django command {name!r}: there is no Django in {sys.executable}: check `interpreter`")
    from django.core.management import CommandError

    try:
        _run(*(_prepared.get(name) or _command(name)), json.loads(arguments), _payload())
    except NotRunnableError as error:
        return _print_error(f"django command {name!r}: {error}")
    except CommandError as error:
        sys.stdout.flush()
        sys.stderr.write(f"CommandError: {error}\n")
        return int(getattr(error, "returncode", 1))
    finally:
        # As manage.py does.
        from django.db import connections

        connections.close_all()
    return 0


def _set_up(project: str, settings: str) -> None:
    from django.apps import apps

    if apps.ready:
        return
    if not os.path.isdir(project):  # noqa: PTH112 (pathlib costs milliseconds)
        raise NotRunnableError(f"there is no folder {project}: check `project`")
    if project not in sys.path:
        sys.path.insert(0, project)
    os.environ[_VARIABLE] = settings or os.environ.get(_VARIABLE, "") or _settings_of(project)
    import django

    django.setup()


def _settings_of(project: str) -> str:
    try:
        with open(f"{project}/manage.py", encoding="utf-8") as file:  # noqa: PTH123 (pathlib costs milliseconds)
            found = _IN_MANAGE.search(file.read())
    except OSError:
        found = None
    if found is None:
        raise NotRunnableError(f"{project}/manage.py names no settings module: add `settings: package.settings`")
    return found[1]


def _command(name: str) -> tuple[Any, Any]:
    """The command and its parser."""
    from django.core.management import get_commands, load_command_class

    commands = get_commands()
    if name not in commands:
        import difflib

        near = difflib.get_close_matches(name, commands, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise NotRunnableError(f"no app of {os.environ[_VARIABLE]} has it{hint}")
    app = commands[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    return command, command.create_parser("manage.py", name)


def _payload() -> dict[str, Any]:
    with open(os.environ["TOBAN_PAYLOAD_FILE"], "rb", buffering=0) as file:  # noqa: PTH123 (pathlib costs milliseconds)
        text = file.read()
    # The decoder of a fork costs more than the rest of an empty payload.
    payload: dict[str, Any] = {} if text.strip() in (b"", b"{}") else json.loads(text)
    return payload


def _run(command: Any, parser: Any, arguments: list[str], payload: dict[str, Any]) -> None:
    """As call_command does, which checks the whole project no more than this."""
    options = vars(parser.parse_args([*arguments, *_options(parser, payload)]))
    positional = options.pop("args", ())
    command.execute(*positional, **{**options, "skip_checks": True})


def _options(parser: Any, payload: dict[str, Any]) -> list[str]:
    """The payload as it is on the command line, so that types and choices are those of the command. Positional arguments keep their order."""
    actions = {action.dest: action for action in parser._actions if action.dest not in _NOT_OF_A_STEP}
    for key in payload:
        if key not in actions:
            raise NotRunnableError(f"the payload has {key!r}, the command takes {', '.join(sorted(actions))}")
    options: list[str] = []
    positional: list[str] = []
    for dest, action in actions.items():
        if payload.get(dest) is None:
            continue
        if action.option_strings:
            options += _option(action, payload[dest])
        else:
            positional += _texts(payload[dest])
    return [*options, "--", *positional] if positional else options


def _option(action: Any, value: Any) -> list[str]:
    flag = max(action.option_strings, key=len)
    if action.nargs == 0:
        return _switch(action, flag, value)
    if isinstance(value, list):
        texts = _texts(value)
        if action.nargs is None:
            # Repeatable.
            return [f"{flag}={text}" for text in texts]
        if wrong := [text for text in texts if text.startswith("-") and not _NEGATIVE.fullmatch(text)]:
            text = f"the payload has {action.dest!r}: {wrong[0]!r}; it would be read as an option of its own"
            raise NotRunnableError(text)
        return [flag, *texts]
    return [f"{flag}={text}" for text in _texts(value)]


def _switch(action: Any, flag: str, value: Any) -> list[str]:
    if not isinstance(value, bool):
        raise NotRunnableError(f"the payload has {action.dest!r}: {json.dumps(value)}; it is true or false")
    if len({one.startswith("--no-") for one in action.option_strings}) == 2:
        return [next(one for one in action.option_strings if one.startswith("--no-") != value)]
    return [flag] if value == action.const else []


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one if isinstance(one, str) else json.dumps(one) for one in values]


def _print_error(line: str) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"toban: {line}\n")
    return 1


if __name__ == "__main__":
    if sys.path[0] == os.path.dirname(__file__):  # noqa: PTH120 (pathlib costs milliseconds)
        # It is no place for modules of the job.
        del sys.path[0]
    sys.exit(main(*sys.argv[1:]))
