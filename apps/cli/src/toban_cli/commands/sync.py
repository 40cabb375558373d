"""`toban sync`: jobs that are declared beside the code."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from toban.client import Client
from toban.declaring import keys, model
from toban.declaring import sync as declared_sync
from toban.errors import TobanError as SiteError
from toban_cli import report
from toban_cli.rest.connection import domain_error
from toban_cli.rest.site import Site, read_site
from toban_cli.sanitize import clean
from toban_domain.errors import ErrorCode, TobanError

Modules = Annotated[list[str], typer.Argument(metavar="MODULE...", help="Modules with functions that @job decorates.")]
Project = Annotated[
    str, typer.Option(help="Which jobs of the site belong together. Default: the package of the first module.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would change; change nothing.")]
Prune = Annotated[
    bool,
    typer.Option(
        "--prune",
        help="End schedules and triggers of the project that the imported modules no longer declare. Needs --project.",
    ),
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Also change jobs, schedules and triggers with these names that are not of this project."
    ),
]
Interpreter = Annotated[str, typer.Option(metavar="FILE", help="The Python of the project on the executors.")]
Folder = Annotated[str, typer.Option(metavar="DIR", help="The folder of the modules on the executors.")]
_REMEDY = {"folder": "--folder", "interpreter": "--interpreter"}


def sync(
    modules: Modules,
    project: Project = "",
    dry_run: DryRun = False,
    prune: Prune = False,
    take_over: TakeOver = False,
    interpreter: Interpreter = "",
    folder: Folder = "",
) -> None:
    """Apply the jobs that Python modules declare with @job of the SDK: all of them, or none.

    The modules are imported from the working folder, in the environment of this command. Jobs on the site keep their interpreter and folder
    unless an option names them; new ones get those of this command.

    Examples:
    toban sync shop.reports shop.mail --dry-run
    toban sync shop.reports shop.mail --prune --project shop
    toban sync shop.reports --interpreter /srv/shop/.venv/bin/python --folder /srv/shop
    """
    for option, path in (("--interpreter", interpreter), ("--folder", folder)):
        if path and not path.startswith("/"):
            message = f"{option} is {path!r}; give an absolute path on the executors"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    if prune and not project:
        message = (
            f"--prune ends jobs of a project, so name it: --project {modules[0].partition('.')[0]}, or another one"
        )
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    site = read_site(os.environ)
    if site is None:
        raise TobanError(ErrorCode.CONFIG_INVALID, "sync goes over REST; `toban login URL` chooses a site")
    try:
        for name in modules:
            _load(name)
        _carry_out(
            site,
            model.Place(
                folder=folder or str(Path.cwd()),
                interpreter=interpreter or sys.executable,
                project=project or modules[0].partition(".")[0],
                label=keys.PROJECT_LABEL,
            ),
            {name for name, given in (("folder", folder), ("interpreter", interpreter)) if given},
            dry_run=dry_run,
            prune=prune,
            take_over=take_over,
        )
    except model.DeclarationError as error:
        raise TobanError(ErrorCode.MANIFEST_INVALID, str(error)) from None


def _carry_out(site: Site, place: model.Place, named: set[str], *, dry_run: bool, prune: bool, take_over: bool) -> None:
    try:
        with Client(site) as client:
            found = declared_sync.plan(
                client, model.declared(), place, named, take_over=take_over, is_read=sys.modules.__contains__
            )
            for line in declared_sync.lines(found, place, _REMEDY, dry_run=dry_run, prune=prune):
                report.echo(clean(line))
            if found.is_empty and not found.changes:
                report.echo("no module has a function that @job decorates")
            if not dry_run:
                declared_sync.carry_out(client, found, prune=prune)
    except SiteError as error:
        raise domain_error(error, site, has_password=False) from None


def _load(name: str) -> None:
    # As `python -m` finds it.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(name, error) from error
        hint = f"{sys.executable} looks in {here} and in its packages; install toban in the environment of the project"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"there is no module {error.name!r}: {hint}") from None
    except model.DeclarationError:
        raise
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> TobanError:
    return TobanError(
        ErrorCode.INVALID_ARGUMENT, f"the module {name!r} cannot be imported: {type(error).__name__}: {error}"
    )
