"""`toban secret`: values that jobs need and that no definition, log or list has."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from toban_cli.client import call
from toban_cli.completion_values import job_names
from toban_cli.formatting import NOTHING, age, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import Column, show, show_done
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.secret import MAX_VALUE, check_name, check_value

SecretName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the secret.", show_default=False, callback=check_name)
]
ValueFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="File with the value; it is taken as it is.", show_default=False),
]
Jobs = Annotated[
    list[str] | None,
    typer.Option(
        "--job", metavar="JOB", help="Only these jobs may use it; repeat.", show_default=False, autocompletion=job_names
    ),
]
AllJobs = Annotated[bool, typer.Option("--all-jobs", help="Every job may use it again.")]
Force = Annotated[bool, typer.Option("--force", help="Also while jobs name it: their runs fail from then on.")]


def set_secret(
    name: SecretName,
    file: ValueFile = None,
    job: Jobs = None,
    all_jobs: AllJobs = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Store a secret, or give it a new value. The value comes from stdin (without its last newline), a prompt, or a file.

    Examples:
    toban secret set db-password --job report --job cleanup
    pass show db | toban secret set db-password
    toban secret set deploy-key --file id_ed25519
    """
    value = check_value(_value(check_name(name), file))
    request = pb.SetSecretRequest(name=name, value=value, jobs=job or [], all_jobs=all_jobs, reason=reason)
    answer = call("Operations.SetSecret", request)
    who = f"for {', '.join(answer.jobs)}" if answer.jobs else "for every job"
    show_done(output, answer, f"secret {name} stored (version {answer.version}), {who}")


def list_secrets(output: Output = Format.TABLE) -> None:
    """List secrets: who may use them and who does; never their values.

    Examples:
    toban secret list
    """
    found = call("Operations.ListSecrets", pb.ListSecretsRequest()).secrets
    now = wall_now()
    table = [
        Column("NAME", lambda item: item.name, name=True),
        Column("FOR", lambda item: ", ".join(item.jobs) or "every job", loose=True),
        Column("USED BY", lambda item: ", ".join(item.used_by) or NOTHING, loose=True),
        Column("LAST USE", lambda item: age(item.last_used_at, now)),
        Column("KEY", lambda item: item.key_id if item.readable else f"{item.key_id} (missing)"),
        Column("CHANGED", lambda item: age(item.updated_at, now)),
        Column("BY", lambda item: item.updated_by),
    ]
    show(output, found, table=table, wide=[Column("VERSION", lambda item: str(item.version))], empty="No secrets.")


def delete(name: SecretName, force: Force = False, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Delete a secret.

    Examples:
    toban secret delete db-password
    """
    answer = call("Operations.RemoveSecret", pb.RemoveSecretRequest(name=name, force=force, reason=reason))
    show_done(output, answer, f"secret {name} deleted", name=lambda _: name)


def rotate(reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Encrypt every secret with the first key of the key file again. Older keys can be taken out of the file afterwards.

    Examples:
    toban secret rotate --reason "key of 2025 retired"
    """
    answer = call("Operations.RotateSecrets", pb.RotateSecretsRequest(reason=reason))
    lines = [f"{answer.rotated} secrets encrypted again; all that can be read have key {answer.key_id}"]
    if answer.unreadable:
        lines.append(f"no key of the file opens {', '.join(answer.unreadable)}: add the key, or set them again")
    show_done(output, answer, lines, name=lambda item: item.key_id)


def _value(name: str, file: Path | None) -> bytes:
    """Never from an argument: those are seen by every account of the machine."""
    if file is not None:
        try:
            with file.open("rb") as stream:
                return stream.read(MAX_VALUE + 1)
        except OSError as error:
            raise TobanError(ErrorCode.NOT_FOUND, f"--file: {file} cannot be read ({error.strerror})") from None
    if sys.stdin.isatty():
        return getpass(f"Value of {name}: ").encode()
    return sys.stdin.buffer.read(MAX_VALUE + 2).removesuffix(b"\n").removesuffix(b"\r")
