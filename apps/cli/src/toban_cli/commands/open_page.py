"""`toban open`: the site in a browser."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

import typer

from toban_cli import report
from toban_cli.options import check_given_name
from toban_domain.errors import ErrorCode, TobanError


class Page(StrEnum):
    """What has a page of its own."""

    JOB = "job"
    RUN = "run"
    SCHEDULE = "schedule"


What = Annotated[
    Page | None,
    typer.Argument(metavar="[job|run|schedule]", help="What to show; the dashboard without.", show_default=False),
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="[NAME|RUN]",
        help="Name of the job or schedule, or number of the run.",
        show_default=False,
        callback=check_given_name,
    ),
]


def open_page(what: What = None, which: Which = "") -> None:
    """Print the address of a page of the site, and open it in a browser where there is one.

    A browser is looked for where BROWSER names one, and where there is a graphical display.

    Examples:
    toban open
    toban open job hello
    toban open run 12
    """
    if what is not None and not which:
        raise typer.BadParameter(f"which {what} is missing; `toban {what} list` shows them", param_hint="[NAME|RUN]")
    if what is Page.RUN and not (which.isascii() and which.isdigit()):
        raise typer.BadParameter(f"{which!r} is not the number of a run", param_hint="[NAME|RUN]")
    address = _site() + (f"/{what}s/{quote(which, safe='')}" if what else "/")
    report.echo(address)
    if _has_browser():
        import webbrowser

        webbrowser.open(address)


def _site() -> str:
    from toban_cli.cluster_config import COORDINATORS, given, read_stack
    from toban_cli.rest.site import read_site

    site = read_site(os.environ)
    if site is not None:
        return site.url
    # Calls that need no site do not keep a person from looking at it.
    sites = [] if given(os.environ, COORDINATORS)[1] else read_stack(os.environ).get("sites", [])
    if not sites:
        message = "commands go to coordinators, and no site is known; name one with `toban login URL` or TOBAN_URL"
        raise TobanError(ErrorCode.CONFIG_INVALID, message)
    return f"http://{sites[0]}"


def _has_browser() -> bool:
    """Browsers of a text terminal are left out, because they would take it over."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
