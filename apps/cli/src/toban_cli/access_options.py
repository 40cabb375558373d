"""Options that rules and API tokens share: which jobs, and passwords that never stand in argv."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from toban_cli.completion_values import job_names
from toban_cli.options import check_name, parse_labels
from toban_domain.errors import ErrorCode, TobanError

UserName = Annotated[
    str, typer.Argument(metavar="USER", help="Name of the account.", show_default=False, callback=check_name)
]
RoleName = Annotated[str, typer.Argument(metavar="ROLE", help="viewer, operator, editor or admin.", show_default=False)]
ForJob = Annotated[str, typer.Option("--job", metavar="JOB", help="Only for this job.", autocompletion=job_names)]
ForLabels = Annotated[
    list[str] | None, typer.Option("--label", metavar="K=V", help="Only for jobs with this label; can be repeated.")
]
ForScope = Annotated[
    str, typer.Option("--scope", metavar="SCOPE[:ID]", help="Only for this scope: system, account:17, user:ada.")
]
MAX_SECRET = 4096


def selector(job: str, labels: list[str], scope: str) -> Any:
    """The AccessSelector of these options. Raises BadParameter."""
    from toban_proto.v1.coordinator_pb2 import AccessSelector

    made = AccessSelector(job=job, labels=parse_labels(labels))
    made.scope, _, made.scope_id = scope.partition(":")
    return made


def format_selector(message: Any) -> str:
    """`job backup, team=ops, account:17`; `everything` for an empty one."""
    parts = [f"job {message.job}"] if message.job else []
    parts += [f"{key}={value}" for key, value in sorted(message.labels.items())]
    if message.scope:
        parts.append(f"{message.scope}:{message.scope_id}" if message.scope_id else message.scope)
    return ", ".join(parts) or "everything"


def read_secret(prompt: str, *, twice: bool = True) -> str:
    """A secret from a terminal, asked for twice, or the next line of standard input. Raises INVALID_ARGUMENT for none or one that is too long."""
    if sys.stdin.isatty():
        given: str = typer.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True)
        return given
    line = sys.stdin.readline(MAX_SECRET + 2).rstrip("\r\n")
    if not line:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"standard input has no line for: {prompt}")
    if len(line) > MAX_SECRET:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"the line of standard input for {prompt} has more than {MAX_SECRET} characters"
        )
    return line
