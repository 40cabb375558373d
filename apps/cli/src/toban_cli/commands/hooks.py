"""`toban hook`: messages of other systems that become events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from toban_cli.client import call
from toban_cli.commands.webhooks import NewSecret, SecretFile, read_secret_file
from toban_cli.formatting import NOTHING, age, brief, wall_now
from toban_cli.messages import hooks_pb
from toban_cli.options import AuditReason, Format, Output, check_name
from toban_cli.output import Column, show, show_done
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import kind_of

HookName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the hook.", show_default=False, callback=check_name)
]
Kind = Annotated[
    str,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Of a new hook: standard, github, cloudevents, cloudevents-token.",
        show_default=False,
    ),
]
EventType = Annotated[str, typer.Option("--type", metavar="TYPE", help="The type of every event.", show_default=False)]
Events = Annotated[
    list[str] | None,
    typer.Option(
        "--event",
        metavar="VALUE[=TYPE]",
        help="A value that becomes an event, of this type; repeat. Others are ignored.",
        show_default=False,
    ),
]
TypeFrom = Annotated[
    str,
    typer.Option(
        "--type-from",
        metavar="WHERE",
        help="Where that value is: field:PATH, or header:NAME for github and cloudevents-token. Default: the type that the kind has.",
        show_default=False,
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option("--field", metavar="PATH", help="Of the body, the event keeps only this; repeat.", show_default=False),
]
Rate = Annotated[
    int,
    typer.Option(
        "--rate", metavar="N", min=0, max=60_000, help="Events a minute; a new hook has 600.", show_default=False
    ),
]
Enabled = Annotated[
    bool | None,
    typer.Option("--enable/--disable", help="While disabled, its messages are refused.", show_default=False),
]
DropOldSecret = Annotated[bool, typer.Option("--drop-old-secret", help="Refuse the secret before the present one.")]
Value = Annotated[
    str,
    typer.Option("--value", metavar="VALUE", help="The value of the header that decides the type.", show_default=False),
]
Body = Annotated[
    str, typer.Option("--payload", metavar="JSON|@FILE", help="The body of the message.", show_default=False)
]


def set_hook(
    name: HookName,
    kind: Kind = "",
    event_type: EventType = "",
    event: Events = None,
    type_from: TypeFrom = "",
    field: Fields = None,
    rate: Rate = 0,
    enable: Enabled = None,
    secret_file: SecretFile = None,
    new_secret: NewSecret = False,
    drop_old_secret: DropOldSecret = False,
    reason: AuditReason = "",
    output: Output = Format.TABLE,
) -> None:
    """Make a hook, or change what is given. --type, --event, --type-from and --field together replace its mapping.

    A secret that is made is printed once. After --new-secret the one before is valid too, until --drop-old-secret.

    Examples:
    toban hook set shop --kind standard --type order.paid
    toban hook set repo --kind github --event push=git.push --event pull_request --field ref --field repository.full_name
    toban hook set repo --new-secret
    toban hook set repo --drop-old-secret
    """
    request = hooks_pb.SetHookRequest(
        name=name,
        kind=kind,
        enabled=enable,
        rate_per_minute=rate,
        new_secret=new_secret,
        drop_old_secret=drop_old_secret,
        reason=reason,
    )
    if secret_file is not None:
        request.secret = read_secret_file(secret_file)
    if event_type or event or type_from or field:
        events = dict(_event(text) for text in event or [])
        request.mapping.CopyFrom(
            hooks_pb.HookMapping(event_type=event_type, events=events, type_from=type_from, fields=field or [])
        )
    answer = call("Hooks.SetHook", request)
    lines = [f"hook {name} ({answer.hook.kind}): {_becomes(answer.hook)}, {_state(answer.hook)}"]
    if answer.secret:
        lines = [answer.secret, *lines, "the first line is its secret; it is not shown again"]
    show_done(output, answer, lines, name=lambda item: item.secret or name)


def list_hooks(output: Output = Format.TABLE) -> None:
    """List hooks: which messages become which events.

    Examples:
    toban hook list
    """
    _show("", output)


def get_hook(name: HookName, output: Output = Format.TABLE) -> None:
    """Show one hook.

    Examples:
    toban hook get repo -o yaml
    """
    _show(name, output)


def delete(name: HookName, reason: AuditReason = "", output: Output = Format.TABLE) -> None:
    """Delete a hook. Its events stay.

    Examples:
    toban hook delete repo --reason "moved"
    """
    answer = call("Hooks.RemoveHook", hooks_pb.RemoveHookRequest(name=name, reason=reason))
    show_done(output, answer, f"hook {name} deleted", name=lambda _: name)


def test(name: HookName, value: Value = "", payload: Body = "", output: Output = Format.TABLE) -> None:
    """Sign a message with the secret of a hook, and show which event it would become. Emits nothing.

    Examples:
    toban hook test repo --value push --payload @push.json
    """
    answer = call("Hooks.TestHook", hooks_pb.TestHookRequest(name=name, value=value, payload_json=_body(payload)))
    outcomes = {"ping": "answered as a ping", "ignored": "ignored: no event for its value"}
    done = outcomes.get(answer.result, f"an event {answer.event_type} with payload {answer.payload_json}")
    show_done(output, answer, f"{name}: the message would be {done}", name=lambda item: item.event_type)


def _show(name: str, output: Format) -> None:

    found = call("Hooks.ListHooks", hooks_pb.ListHooksRequest(name=name)).hooks
    now = wall_now()
    table = [
        Column("NAME", lambda item: item.name, name=True),
        Column("KIND", lambda item: item.kind),
        Column("EVENTS", _becomes, loose=True),
        Column("STATE", _state),
        Column("LAST EVENT", lambda item: brief(item.last_event_at, now)),
    ]
    wide = [
        Column("TYPE FROM", lambda item: item.mapping.type_from or NOTHING),
        Column("FIELDS", lambda item: ",".join(item.mapping.fields) or "all", loose=True),
        Column("RATE", lambda item: f"{item.rate_per_minute}/min"),
        Column("SECRETS", lambda item: str(item.secrets)),
        Column("CHANGED", lambda item: age(item.updated_at, now)),
        Column("BY", lambda item: item.updated_by),
    ]
    show(output, found, table=table, wide=wide, empty="No hooks. Make one with `toban hook set`.")


def _event(text: str) -> tuple[str, str]:
    value, _, event_type = text.partition("=")
    return value, event_type or value


def _body(given: str) -> str:
    """The text of --payload. Raises PAYLOAD_INVALID unless it is one JSON object, or empty."""
    text = given
    if given.startswith("@"):
        try:
            text = Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"--payload {given} cannot be read ({error}); give a JSON file"
            raise TobanError(ErrorCode.PAYLOAD_INVALID, message) from None
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise TobanError(ErrorCode.PAYLOAD_INVALID, f"--payload is not JSON ({error}); give one JSON object") from None
    if not isinstance(found, dict):
        message = f"--payload is {kind_of(found)}; give one JSON object, as the sender's message has"
        raise TobanError(ErrorCode.PAYLOAD_INVALID, message)
    return text


def _becomes(hook: Any) -> str:
    mapping = hook.mapping
    events: Sequence[tuple[str, str]] = sorted(mapping.events.items())
    return mapping.event_type or ", ".join(value if value == kind else f"{value}={kind}" for value, kind in events)


def _state(hook: Any) -> str:
    return "active" if hook.enabled else "disabled"
