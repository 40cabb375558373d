"""`toban webhook`: where ends of runs are sent, and what became of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from toban_cli.access_options import MAX_SECRET, read_secret
from toban_cli.client import call, collect, connect
from toban_cli.completion_values import job_names
from toban_cli.formatting import NOTHING, age, brief, count, wall_now
from toban_cli.messages import webhooks_pb
from toban_cli.options import AuditReason, Format, Limit, Output, check_name, parse_labels
from toban_cli.output import Column, show, show_done
from toban_cli.param_types import LARGEST
from toban_domain.errors import ErrorCode, TobanError

# How long `test` waits for the outcome of its try, seconds: the site asks every 10 s while no webhook is enabled, and a try lasts 20 s at most.
TEST_SECONDS = 35.0
# Between two looks at it, seconds: each pause is twice the one before, up to the longest.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 4.0

HookName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the webhook.", show_default=False, callback=check_name)
]
Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        help="Where to; - reads it from stdin, for a URL that is itself a secret.",
        show_default=False,
    ),
]
Form = Annotated[
    str,
    typer.Option(
        "--form", metavar="FORM", help="generic (signed JSON), slack, teams or smtp (mail).", show_default=False
    ),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state", metavar="STATE", help="Ends in this state, also LATE, ALL or NONE; repeat.", show_default=False
    ),
]
Jobs = Annotated[
    list[str] | None,
    typer.Option(
        "--job", metavar="JOB", help="Of this job only; repeat.", show_default=False, autocompletion=job_names
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="Of jobs with this label only; repeat.", show_default=False),
]
Enabled = Annotated[
    bool | None,
    typer.Option("--enable/--disable", help="While disabled, it gets nothing, also not later.", show_default=False),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="File with its secret, whsec_...; without one it is random.",
        show_default=False,
    ),
]
NewSecret = Annotated[bool, typer.Option("--new-secret", help="Replace its secret by a random one.")]
Deliveries = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="DELIVERY", min=1, max=LARGEST, help="This delivery; repeat.", show_default=False),
]


def set_webhook(
    name: HookName,
    url: Url = "",
    form: Form = "",
    state: States = None,
    job: Jobs = None,
    label: Labels = None,
    enable: Enabled = None,
    secret_file: SecretFile = None,
    new_secret: NewSecret = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Make a webhook, or change what is given. --state, --job and --label together replace its filter.

    A new one gets the states FAILED, TIMED_OUT and EXPIRED of every job; with --state none only what jobs notify it of. Its secret is printed once.

    Examples:
    toban webhook set pager --url https://alerts.example.com/toban
    toban webhook set pager --state FAILED --state LATE --label team=data
    cat smtp-url.txt | toban webhook set mail --url - --state none
    cat url.txt | toban webhook set chat --form slack --state none --url -
    toban webhook set pager --disable --reason "moves to another host"
    """
    if url == "-":
        # It is a secret itself: a terminal does not show it.
        url = read_secret("URL of the webhook", twice=False).strip()
    request = webhooks_pb.SetWebhookRequest(
        name=name, url=url, form=form, new_secret=new_secret, reason=reason, enabled=enable
    )
    if secret_file is not None:
        request.secret = read_secret_file(secret_file)
    if state or job or label:
        request.filter.CopyFrom(
            webhooks_pb.WebhookFilter(states=_states(state or []), jobs=job or [], labels=parse_labels(label or []))
        )
    answer = call("Webhooks.SetWebhook", request)
    found = answer.webhook
    lines = [
        f"webhook {name}: {', '.join(found.states) or 'no ends'} {_about(found)} to {found.origin}, {found.status}"
    ]
    if answer.secret:
        lines = [answer.secret, *lines, "the first line is its secret; it is not shown again"]
    show_done(output, answer, lines, name=lambda item: item.secret or name)


def list_webhooks(output: Output = Format.TABLE) -> None:
    """List webhooks: what each gets, and whether it takes it.

    Examples:
    toban webhook list
    """
    found = call("Webhooks.ListWebhooks", webhooks_pb.ListWebhooksRequest()).webhooks
    now = wall_now()
    table = [
        Column("NAME", lambda item: item.name, name=True),
        Column("TO", lambda item: item.origin, loose=True),
        Column("STATES", lambda item: ",".join(item.states) or NOTHING, loose=True),
        Column("JOBS", _about, loose=True),
        Column("STATUS", lambda item: item.status),
        Column("WAITING", lambda item: str(item.pending)),
        Column("OLDEST", lambda item: age(item.oldest_pending_at, now)),
        Column("LAST ERROR", lambda item: item.last_error or NOTHING, loose=True),
    ]
    wide = [
        Column("FORM", lambda item: item.form),
        Column("FAILURES", lambda item: str(item.failures)),
        Column("SINCE", lambda item: brief(item.failing_since, now)),
        Column("NEXT TRY", lambda item: brief(item.open_until, now)),
        Column("CHANGED", lambda item: age(item.updated_at, now)),
        Column("BY", lambda item: item.updated_by),
    ]
    show(output, found, table=table, wide=wide, empty="No webhooks. Make one with `toban webhook set`.")


def delete(name: HookName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Delete a webhook. What waits for it is not sent.

    Examples:
    toban webhook delete pager --reason "replaced by another one"
    """
    answer = call("Webhooks.RemoveWebhook", webhooks_pb.RemoveWebhookRequest(name=name, reason=reason))
    show_done(output, answer, f"webhook {name} deleted", name=lambda _: name)


def test(name: HookName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Send an event of type webhook.test, and wait for what becomes of it. Exit code 1 when the target did not take it.

    Examples:
    toban webhook test pager
    """
    with connect() as client:
        found = client.call("Webhooks.TestWebhook", webhooks_pb.TestWebhookRequest(name=name, reason=reason))
        timer, waited, pause = threading.Event(), 0.0, _FIRST_PAUSE_SECONDS
        request = webhooks_pb.ListDeliveriesRequest(webhook=name, id=found.id)
        while found.state == "pending" and not found.error and waited < TEST_SECONDS:
            timer.wait(pause)
            waited, pause = waited + pause, min(2 * pause, _LONGEST_PAUSE_SECONDS)
            [found] = client.call("Webhooks.ListDeliveries", request).deliveries
    show_done(output, found, f"delivery {found.id} to {name}: {_outcome(found)}")
    if found.state != "delivered":
        raise typer.Exit(1)


def deliveries(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only those of this webhook.", show_default=False)] = "",
    state: Annotated[str, typer.Option("--state", metavar="STATE", help="pending, delivered or failed.")] = "",
    run: Annotated[
        int, typer.Option("--run", metavar="RUN", min=0, max=LARGEST, help="Only those about this run.")
    ] = 0,
    limit: Limit = 20,
    output: Output = Format.TABLE,
) -> None:
    """List what was sent or is to be sent, newest first.

    Examples:
    toban webhook deliveries pager --state failed
    """
    with connect() as client:
        found, _ = collect(
            lambda page: client.call(
                "Webhooks.ListDeliveries",
                webhooks_pb.ListDeliveriesRequest(page=page, webhook=name, state=state, run_id=run),
            ),
            "deliveries",
            limit,
        )
    now = wall_now()
    table = [
        Column("DELIVERY", lambda item: str(item.id)),
        Column("WEBHOOK", lambda item: item.webhook, name=True),
        Column("TYPE", lambda item: item.type),
        Column("RUN", lambda item: str(item.run_id) if item.run_id else NOTHING),
        Column("AT", lambda item: brief(item.created_at, now)),
        Column("STATE", lambda item: item.state),
        Column("TRIES", lambda item: str(item.attempts)),
        Column("NEXT", lambda item: brief(item.next_at, now)),
        Column("STATUS", lambda item: str(item.status) if item.status else NOTHING),
        Column("ERROR", lambda item: item.error or NOTHING, loose=True),
    ]
    wide = [Column("EVENT", lambda item: item.event_id)]
    show(output, found, table=table, wide=wide, empty="No deliveries.", name=lambda item: str(item.id))


def redeliver(
    name: HookName, delivery: Deliveries = None, reason: AuditReason = "", output: Output = Format.TABLE
) -> None:
    """Send again what has failed, or the deliveries that are given, under the ids that they had.

    Examples:
    toban webhook redeliver pager
    toban webhook redeliver pager --id 31
    """
    answer = call("Webhooks.Redeliver", webhooks_pb.RedeliverRequest(webhook=name, ids=delivery or [], reason=reason))
    done = f"{name}: {count(answer.redelivered, 'delivery') if answer.redelivered == 1 else f'{answer.redelivered} deliveries'} sent again"
    show_done(output, answer, done, name=lambda _: name)


def read_secret_file(file: Path) -> str:
    """The secret in it. Raises NOT_FOUND, INVALID_ARGUMENT."""
    try:
        with file.open(encoding="utf-8") as stream:
            secret = stream.read(MAX_SECRET + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise TobanError(ErrorCode.NOT_FOUND, f"--secret-file: {file} cannot be read ({why})") from None
    if len(secret) > MAX_SECRET:
        message = f"--secret-file: {file} has more than {MAX_SECRET} characters; name the file with the secret alone"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    return secret


def _states(given: Sequence[str]) -> list[str]:
    from toban_domain.run_end import LATE, RUN_END_STATES

    upper = [state.upper() for state in given]
    if upper == ["NONE"]:
        return upper
    if "ALL" in upper:
        return [state for state in RUN_END_STATES if state != LATE]
    for state in upper:
        if state not in RUN_END_STATES:
            known = ", ".join(RUN_END_STATES)
            raise typer.BadParameter(
                f"{state!r} is no state in which a run ends; use {known}, ALL or NONE alone", param_hint="--state"
            )
    return upper


def _about(webhook: Any) -> str:
    """`of every job`, or of which."""
    parts = [*webhook.jobs, *(f"{key}={value}" for key, value in sorted(webhook.labels.items()))]
    return f"of {', '.join(parts)}" if parts else "of every job"


def _outcome(delivery: Any) -> str:
    if delivery.state == "delivered":
        return f"delivered, the target responded with {delivery.status}"
    if delivery.error:
        return str(delivery.error)
    return f"not tried within {TEST_SECONDS:g} s: does admin-web run, and is the breaker closed (`toban webhook list`)?"
