"""Options and arguments that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from toban_cli import report
from toban_cli.completion_values import job_names, run_numbers, schedule_names
from toban_cli.param_types import LARGEST
from toban_domain.access import MAX_REASON
from toban_domain.errors import ErrorCode, TobanError


class Format(StrEnum):
    """Format of the output of a command."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def is_data(self) -> bool:
        """True for the formats that programs read as data."""
        return self in (Format.JSON, Format.YAML)


def check_reason(reason: str) -> str:
    """The reason; a warning on stderr when servers will cut it."""
    if len(reason.strip()) > MAX_REASON:
        report.note(f"warning: --reason has {len(reason.strip())} characters, the first {MAX_REASON} are kept")
    return reason


# Characters of the longest name that the site takes.
MAX_NAME = 300


def check_name(name: str) -> str:
    """The name of an object. Raises BadParameter for a name that no object can have: the path of a REST route could not carry it."""
    if "/" in name:
        raise typer.BadParameter(f"{name!r} contains '/', which no name does; give the name alone")
    return check_path_name(name)


def check_given_name(name: str) -> str:
    """As `check_name`, where no name at all is good too."""
    return check_name(name) if name else name


def check_path_name(name: str) -> str:
    """As `check_name`, for names that may contain a slash: those of limits."""
    if not name.strip():
        raise typer.BadParameter("the name is empty; give a name (an unset variable of the shell makes it empty)")
    if any(part in ("", ".", "..") for part in name.split("/")) or not name.isprintable():
        raise typer.BadParameter(f"{name!r} is not a name; names have letters, digits, '.', '_' and '-'")
    if len(name) > MAX_NAME:
        raise typer.BadParameter(f"the name has {len(name)} characters; no name has more than {MAX_NAME}")
    return name


def parse_labels(given: Sequence[str]) -> dict[str, str]:
    """The values of --label by key. Raises BadParameter."""
    labels: dict[str, str] = {}
    for label in given:
        key, equals, value = label.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"{label!r} is not a label; write team=ops", param_hint="--label")
        if key in labels:
            raise typer.BadParameter(f"{key!r} is given twice", param_hint="--label")
        labels[key] = value
    return labels


def confirm(question: str, what: str) -> None:
    """Asks at a terminal; an answer other than yes ends the command. Raises INVALID_ARGUMENT without a terminal."""
    if not sys.stdin.isatty():
        message = f"{what} needs a confirmation, but stdin is not a terminal; add --yes"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    typer.confirm(question, abort=True, err=True)


AuditReason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", callback=check_reason, help="Why; stored in the audit log.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Until = Annotated[
    str,
    typer.Option(
        "--until",
        metavar="TIME",
        help='When it ends by itself: "2026-12-01 08:00" (clocks of this machine), 2026-12-01T08:00+01:00, or +2h.',
    ),
]
Output = Annotated[
    Format,
    typer.Option("--output", "-o", help="table or wide for people, json or yaml for programs, name for xargs."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show at most this many.")]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", metavar="FILE", help="A YAML file, a folder of them, or - for stdin."),
]
SomeFiles = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE]...", help="The same as with --file.", show_default=False)
]


def all_files(*given: Sequence[str] | None) -> list[str]:
    """The files of --file and those without it. Raises BadParameter when there are none."""
    names = [name for some in given for name in some or ()]
    if not names:
        raise typer.BadParameter(
            "nothing is named; give a YAML file, a folder of them, or - for stdin", param_hint="FILE"
        )
    return names


JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Name of the job.", show_default=False, callback=check_name, autocompletion=job_names
    ),
]
OfJob = Annotated[
    str,
    typer.Option(
        "--job", metavar="JOB", help="Only those of this job.", callback=check_given_name, autocompletion=job_names
    ),
]
ScheduleName = Annotated[
    str,
    typer.Argument(
        metavar="SCHEDULE",
        help="Name of the schedule.",
        show_default=False,
        callback=check_name,
        autocompletion=schedule_names,
    ),
]
RunId = Annotated[
    int,
    typer.Argument(
        metavar="RUN", min=1, max=LARGEST, help="Number of the run.", show_default=False, autocompletion=run_numbers
    ),
]
