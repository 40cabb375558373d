"""`toban explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from toban_cli import report


def _paths(incomplete: str) -> list[str]:
    from toban_cli.explain import paths

    return [path for path in paths() if path.lower().startswith(incomplete.lower())]


What = Annotated[
    str,
    typer.Argument(metavar="KIND[.KEY]", help="Such as Job or Job.retry.", show_default=False, autocompletion=_paths),
]


def explain(what: What = "") -> None:
    """What the keys of a manifest mean.

    Examples:
    toban explain Job
    toban explain Schedule.dst.gap
    """
    from toban_cli.explain import WIDEST
    from toban_cli.explain import explain as explained
    from toban_cli.tables import terminal_width

    report.say(explained(what, min(WIDEST, terminal_width() or WIDEST)))
