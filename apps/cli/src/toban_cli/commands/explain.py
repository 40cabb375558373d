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


Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of all manifests, for editors.")]


def explain(what: What = "", schema: Schema = False) -> None:
    """What the keys of a manifest mean.

    Examples:
    toban explain Job
    toban explain Schedule.dst.gap
    toban explain --schema
    """
    if schema:
        if what:
            raise typer.BadParameter(
                f"{what!r} is not used with --schema, which prints all kinds", param_hint="--schema"
            )
        from toban_manifests.reference import SCHEMA

        report.echo(SCHEMA.read_text(encoding="utf-8").rstrip())
        return
    from toban_cli.explain import WIDEST
    from toban_cli.explain import explain as explained
    from toban_cli.tables import terminal_width

    report.echo(explained(what, min(WIDEST, terminal_width() or WIDEST)))
