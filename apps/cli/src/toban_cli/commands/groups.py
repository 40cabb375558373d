"""`toban group`: groups of executors, which keep what runs on some machines apart from others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import typer

from toban_cli.client import call
from toban_cli.completion_values import executor_group_names
from toban_cli.formatting import NOTHING, age, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output
from toban_cli.output import Column, show, show_done
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import ANY, check_name
from toban_domain.nearest import suggestion

NewName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the group.", show_default=False)]
GroupName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the group.", show_default=False, autocompletion=executor_group_names),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="NAME=VALUE", help="Each executor of the group has this label; repeat.", show_default=False
    ),
]
Claims = Annotated[
    list[str] | None,
    typer.Option(
        "--claim",
        metavar="NAME",
        help="An executor may choose the value of this label; '*' = of any label; repeat.",
        show_default=False,
    ),
]
JobLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--job-label",
        metavar="NAME=VALUE",
        help="Only jobs that have this label run there; repeat.",
        show_default=False,
    ),
]
DropJobLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--drop-job-label", metavar="NAME", help="Jobs no longer need this label; repeat.", show_default=False
    ),
]
DropLabels = Annotated[
    list[str] | None,
    typer.Option("--drop-label", metavar="NAME", help="Remove this label from the group; repeat.", show_default=False),
]
DropClaims = Annotated[
    list[str] | None,
    typer.Option(
        "--drop-claim", metavar="NAME", help="No executor may choose it any more; repeat.", show_default=False
    ),
]
Instances = Annotated[
    list[str] | None,
    typer.Option(
        "--instance",
        metavar="ID",
        help="This instance of an executor, which is off, passes to the group; repeat.",
        show_default=False,
    ),
]


def list_groups(output: Output = Format.TABLE) -> None:
    """List groups of executors: the labels that they have and may claim.

    Examples:
    toban group list
    """
    show(output, _groups(), table=_columns(), wide=_WIDE, empty="No executor groups.")


def get_group(name: GroupName, output: Output = Format.TABLE) -> None:
    """Show one group of executors.

    Examples:
    toban group get pci -o yaml
    """
    show(output, [_find(_groups(), name)], table=_columns(), wide=_WIDE)


def add(
    name: NewName,
    label: Labels = None,
    claim: Claims = None,
    job_label: JobLabels = None,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Make a group of executors. Its certificate names it: `python -m toban_stack certs group NAME`.

    Examples:
    toban group add pci --label pool=pci --claim zone
    toban group add pci --label pool=pci --job-label team=payments
    """
    request = pb.SetExecutorGroupRequest(
        name=check_name(name),
        labels=_pairs(label),
        claims=sorted(set(claim or [])),
        job_labels=_pairs(job_label, "--job-label"),
        create=True,
        reason=reason,
    )
    _send(request, output)


def set_group(
    name: GroupName,
    label: Labels = None,
    drop_label: DropLabels = None,
    claim: Claims = None,
    drop_claim: DropClaims = None,
    job_label: JobLabels = None,
    drop_job_label: DropJobLabels = None,
    instance: Instances = None,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Change a group of executors. Running executors have its labels at once, and lose those that they may not have.

    Examples:
    toban group set pci --label zone=a --drop-claim zone
    toban group set default --drop-claim '*' --claim zone
    toban group set pci --instance 0b54b6a8-9c1e-4d5e-9a55-3a4f1c2d9e10
    """
    before = _find(_groups(), name)
    labels = {**before.labels, **_pairs(label)}
    claims = {*before.claims, *(claim or [])}
    job_labels = {**before.job_labels, **_pairs(job_label, "--job-label")}
    _check_dropped(
        name, ("label", drop_label, labels), ("claim", drop_claim, claims), ("job label", drop_job_label, job_labels)
    )
    kept = {key: value for key, value in job_labels.items() if key not in (drop_job_label or [])}
    request = pb.SetExecutorGroupRequest(
        name=name,
        labels={key: value for key, value in labels.items() if key not in (drop_label or [])},
        claims=sorted(claims - set(drop_claim or [])),
        job_labels=kept,
        no_job_labels=not kept,
        version=before.version,
        instances=instance or [],
        reason=reason,
    )
    _send(request, output)


def delete(name: GroupName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Delete a group of executors. Its executors must be off; their certificate is refused from then on.

    Examples:
    toban group delete pci --reason "moved to another cluster"
    """
    answer = call("Operations.RemoveExecutorGroup", pb.RemoveExecutorGroupRequest(name=name, reason=reason))
    show_done(output, answer, f"executor group {name} deleted", name=lambda _: name)


def _send(request: Any, output: Format) -> None:

    answer = call("Operations.SetExecutorGroup", request)
    lines = [
        f"executor group {answer.name} (version {answer.version}): labels {_labels(answer.labels)}; may claim {_claims(answer)}"
    ]
    if answer.job_labels:
        lines.append(f"it runs only jobs with the labels {_labels(answer.job_labels)}")
    if request.create:
        lines.append(f"executors of it need a certificate with the URI spiffe://TRUST-DOMAIN/executor/{answer.name}")
    show_done(output, answer, lines, name=lambda item: item.name)


def _groups() -> Sequence[Any]:

    found: Sequence[Any] = call("Operations.ListExecutorGroups", pb.ListExecutorGroupsRequest()).groups
    return found


def _find(groups: Sequence[Any], name: str) -> Any:
    for one in groups:
        if one.name == name:
            return one
    hint = suggestion(name, [one.name for one in groups], f"make it: toban group add {name}")
    raise TobanError(ErrorCode.NOT_FOUND, f"there is no executor group {name!r}; {hint}")


def _check_dropped(name: str, *changes: tuple[str, Sequence[str] | None, Collection[str]]) -> None:
    for what, dropped, present in changes:
        for one in dropped or []:
            if one not in present:
                raise TobanError(
                    ErrorCode.INVALID_ARGUMENT, f"group {name!r} has no {what} {one!r}; see `toban group get {name}`"
                )


def _pairs(texts: Sequence[str] | None, option: str = "--label") -> dict[str, str]:
    found = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not key or not equals or not value:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{option} {text!r} is not NAME=VALUE")
        found[key] = value
    return found


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or NOTHING


def _claims(group: Any) -> str:
    return "any label" if ANY in group.claims else ",".join(group.claims) or NOTHING


def _columns() -> list[Column]:
    now = wall_now()
    return [
        Column("NAME", lambda item: item.name, name=True),
        Column("LABELS", lambda item: _labels(item.labels), loose=True),
        Column("MAY CLAIM", _claims, loose=True),
        Column("JOB LABELS", lambda item: _labels(item.job_labels), loose=True),
        Column("EXECUTORS", lambda item: str(item.executors)),
        Column("INSTANCES", lambda item: str(item.instances)),
        Column("CHANGED", lambda item: age(item.updated_at, now)),
        Column("BY", lambda item: item.updated_by or NOTHING),
    ]


_WIDE = [Column("VERSION", lambda item: str(item.version))]
