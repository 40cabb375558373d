"""What `manage.py check` and `manage.py toban_sync` refuse: a wrong setting TOBAN, and declarations that could never run."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toban.declaring.model import DeclarationError, declare, declared
from toban.django.declarations import TASK_COMMAND, CommandDeclaration

# Their values are keys of the step, or mean nothing there.
_NOT_OF_A_STEP = frozenset({"help", "version", "settings", "pythonpath", "skip_checks"})
_BACKEND = "toban.django.tasks.TobanBackend"


def check_settings(**_: Any) -> list[Any]:
    """toban.E001: the setting."""
    from django.core.checks import Error
    from django.core.exceptions import ImproperlyConfigured

    from toban.django.conf import options

    try:
        options()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="toban.E001")]
    return []


def check_declarations(**_: Any) -> list[Any]:
    """toban.E002: what the modules `toban_jobs` declare."""
    from django.core.checks import Error

    try:
        found = list(mistakes())
    except DeclarationError as error:
        found = [str(error)]
    return [Error(text, id="toban.E002") for text in found]


def mistakes() -> Iterator[str]:
    """Reads the modules `toban_jobs` and the queues of TASKS; gives commands and options that are not there, and options that are missing.

    Raises DeclarationError.
    """
    from django.core.management import get_commands
    from django.utils.module_loading import autodiscover_modules

    autodiscover_modules("toban_jobs")
    for backend in _task_backends():
        # What is wrong with one is a check of its own, and `queue_mistakes`.
        for one in () if any(backend.mistakes()) else backend.declarations():
            declare(one)
    apps = get_commands()
    for one in declared():
        if not isinstance(one, CommandDeclaration) or one.command == TASK_COMMAND:
            continue
        if one.command in apps:
            yield from _wrong_options(one, apps[one.command])
            continue
        near = difflib.get_close_matches(one.command, apps, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "`manage.py help` lists the commands"
        yield f"command {one.command!r}: no installed app has this command; {remedy}"


def queue_mistakes() -> Iterator[str]:
    """What is wrong in the setting TASKS, with its remedy."""
    for backend in _task_backends():
        yield from (f"{text} {hint}" for text, hint in backend.mistakes())


def _task_backends() -> Sequence[Any]:
    from django.conf import settings

    try:
        from toban.django import tasks
    except ImportError as error:
        # An earlier Django without django-tasks reads no TASKS, so nothing else would refuse the setting.
        # The project may have a setting of this name for something else.
        given = getattr(settings, "TASKS", {})
        for alias, one in given.items() if isinstance(given, Mapping) else ():
            if isinstance(one, Mapping) and one.get("BACKEND") == _BACKEND:
                raise DeclarationError(f"TASKS[{alias!r}] names {_BACKEND}: {error}") from None
        return ()
    return tasks.backends()


def _wrong_options(one: CommandDeclaration, app: Any) -> Iterator[str]:
    from django.core.management import load_command_class

    try:
        command = load_command_class(app, one.command) if isinstance(app, str) else app
    except (ImportError, AttributeError, SyntaxError) as error:
        yield f"command {one.command!r}: the command cannot be imported: {error}"
        return
    actions = command.create_parser("manage.py", one.command)._actions
    known = {action.dest for action in actions} - _NOT_OF_A_STEP
    for place, payload in one.payloads():
        if unknown := sorted(set(payload) - known):
            names = ", ".join(map(repr, unknown))
            yield f"command {one.command!r}: {place} has {names}; the command takes {', '.join(sorted(known))}"
    yield from _missing_options(one, {action.dest for action in actions if _is_required(action)})


def _is_required(action: Any) -> bool:
    # argparse takes positional arguments for required that may be none.
    return bool(action.required and (action.option_strings or action.nargs not in ("*", "?", "...")))


def _missing_options(one: CommandDeclaration, required: set[str]) -> Iterator[str]:
    """Of what starts the command by itself; a person gives the payload at the start."""
    for place, given in (("schedule", one.schedule), ("trigger", one.trigger)):
        payload = given.get("payload", {})
        # What `args` are for, and what is in a whole object of an event, is known at the run only.
        if not given or one.args or not isinstance(payload, Mapping):
            continue
        if missing := sorted(required - {*one.payload, *payload}):
            names = ", ".join(map(repr, missing))
            yield f"command {one.command!r}: the {place} starts it without {names}, which it requires; add to `payload`"
