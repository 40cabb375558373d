"""`toban unit`: services under systemd."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from toban_cli import report


class Service(StrEnum):
    """A service that has a unit."""

    COORDINATOR = "coordinator"
    EXECUTOR = "executor"
    LOG_ARCHIVER = "log-archiver"
    ADMIN_WEB = "admin-web"
    SIGNER = "signer"


Which = Annotated[
    Service,
    typer.Argument(
        metavar="SERVICE", help="coordinator, executor, log-archiver, admin-web or signer.", show_default=False
    ),
]
Python = Annotated[
    str, typer.Option("--python", metavar="FILE", help="The Python with the service (default: that of this command).")
]


def unit(service: Which, python: Python = "") -> None:
    """Print the unit with which systemd runs a service. Its settings go into /etc/toban/SERVICE.env.

    Examples:
    toban unit executor > /etc/systemd/system/toban-executor.service
    toban unit coordinator --python /opt/toban/bin/python
    """
    report.echo(text_of(service, python or sys.executable))


def text_of(service: Service, python: str) -> str:
    """The unit of a service that this Python has."""
    from importlib.resources import files

    text = files("toban_cli").joinpath(f"units/toban-{service.value}.service").read_text(encoding="utf-8")
    return text.replace("@PYTHON@", python).rstrip()
