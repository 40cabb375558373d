"""`toban context`: which site the commands go to."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from toban_cli import report
from toban_cli.completion_values import context_names
from toban_cli.options import Format, Output
from toban_cli.output import show_data

ContextName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the context.",
        show_default=False,
        autocompletion=context_names,
    ),
]
MaybeContext = Annotated[
    str,
    typer.Argument(
        metavar="[NAME]",
        help="Name of the context; without it what commands use now.",
        show_default=False,
        autocompletion=context_names,
    ),
]


def list_contexts(output: Output = Format.TABLE) -> None:
    """List the contexts by name.

    Examples:
    toban context list
    """
    from toban_cli.contexts import ContextFile
    from toban_cli.tables import table

    known = ContextFile(os.environ).load()
    rows = [_facts(name, known.named[name], known.current) for name in sorted(known.named)]
    if output.is_data:
        show_data(output, rows)
    elif output is Format.NAME:
        for row in rows:
            report.echo(row["name"])
    else:
        cells = [["*" if row["current"] else "", row["name"], row["url"], row["user"], _token(row)] for row in rows]
        empty = "No contexts. Make one with `toban login URL`."
        table(["", "NAME", "URL", "USER", "TOKEN"], cells, loose=["URL"], names=["NAME"], empty=empty)


def use(name: ContextName) -> None:
    """Use a context from now on.

    Examples:
    toban context use prod
    """
    from toban_cli.contexts import ContextFile
    from toban_cli.rest.site import chosen_context

    with ContextFile(os.environ).change() as held:
        held[0] = held[0].with_one(name, held[0].get(name), current=True)
    used, *notes = chosen_context(os.environ, name)
    report.echo(used)
    for note in notes:
        report.note(note)


def delete(name: ContextName) -> None:
    """Delete a context with its token. The token stays good: `toban logout` first revokes it.

    Examples:
    toban context delete old
    """
    from toban_cli.contexts import ContextFile

    with ContextFile(os.environ).change() as held:
        old = held[0].get(name)
        held[0] = held[0].without(name)
    if old.token:
        number = f" {old.token_id}" if old.token_id else ""
        report.note(f"its token{number} stays good at {old.url}; `toban token own` lists it, `revoke-own` ends it")
    report.echo(f"context {name} is deleted")


def get(name: MaybeContext = "", output: Output = Format.TABLE) -> None:
    """Show a context, or without a name what commands use now and why; never a token.

    Examples:
    toban context get
    toban context get prod
    """
    from toban_cli.contexts import ContextFile
    from toban_cli.tables import facts

    if name:
        known = ContextFile(os.environ).load()
        found = _facts(name, known.get(name), known.current)
    else:
        found = _in_use()
    if output.is_data:
        show_data(output, found)
    elif output is Format.NAME:
        report.echo(found["name"])
    else:
        titles = {"name": "Name", "url": "URL", "user": "User", "ca_file": "CA file"}
        shown = [(title, str(found.get(key, ""))) for key, title in titles.items()]
        facts([*shown, ("Token", _token(found))])


def _in_use() -> dict[str, Any]:
    """What the environment and the current context lead to."""
    from toban_cli.cluster_config import read_settings
    from toban_cli.rest.site import read_site

    site = read_site(os.environ)
    if site is not None:
        return {"name": site.name, "url": site.url, "ca_file": site.ca_file, "has_token": bool(site.token)}
    settings = read_settings(os.environ)
    addresses = ", ".join(settings.coordinators)
    return {"name": "direct", "url": f"gRPC to {addresses}", "ca_file": "", "has_token": bool(settings.token)}


def _facts(name: str, context: Any, current: str) -> dict[str, Any]:
    return {
        "name": name,
        "current": name == current,
        "url": context.url,
        "user": context.user,
        "ca_file": context.ca_file,
        "has_token": bool(context.token),
        "token_id": context.token_id or None,
    }


def _token(row: dict[str, Any]) -> str:
    if not row["has_token"]:
        return "none"
    return f"number {row['token_id']}" if row.get("token_id") else "given"
