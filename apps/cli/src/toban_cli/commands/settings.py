"""`toban settings`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli.client import connect
from toban_cli.formatting import NOTHING, age, local, plain_number, wall_now
from toban_cli.messages import pb
from toban_cli.options import AuditReason, Format, Output, check_name
from toban_cli.output import Column, show, show_done, show_one
from toban_cli.param_types import LARGEST
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from datetime import datetime

    from toban_cli.ports import Client

SettingName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the setting.",
        show_default=False,
        callback=check_name,
        autocompletion=lambda incomplete: _setting_names(incomplete),
    ),
]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="New value, or `default` to reset it.", show_default=False)]
Version = Annotated[
    int | None,
    typer.Option("--version", min=0, max=LARGEST, metavar="N", help="Change it only if it still has this version."),
]


def list_settings(output: Output = Format.TABLE) -> None:
    """List the settings that can be changed without a restart.

    Examples:
    toban settings list -o wide
    """
    with connect() as client:
        found = client.call("Operations.ListSettings", pb.ListSettingsRequest()).settings
        table, wide = _setting_columns(wall_now())
        show(output, found, table=table, wide=wide)


def get_setting(name: SettingName, output: Output = Format.TABLE) -> None:
    """Show one setting: its value, range and effect.

    Examples:
    toban settings get executor_lease_seconds
    """
    with connect() as client:
        found = _setting(client, name)
    show_one(output, found, page=lambda _: _setting_page(found))


def set_setting(
    name: SettingName,
    value: Value,
    reason: AuditReason = "",
    version: Version = None,
    output: Output = Format.TABLE,
) -> None:
    """Change a setting for every process, without a restart.

    Examples:
    toban settings set assign_ahead_seconds 60 --reason "large batches at midnight"
    toban settings set assign_ahead_seconds default
    """
    with connect() as client:
        before = _setting(client, name)
        text = before.default_json if value == "default" else _checked_number(value)
        request = pb.UpdateSettingRequest(name=name, value_json=text, reason=reason, version=version)
        answer = client.call("Operations.UpdateSetting", request)
    effect = f"; takes effect {answer.takes_effect}" if answer.version != before.version else "; unchanged"
    line = f"{name}: {_plain_value(before.value_json)} -> {_plain_value(answer.value_json)} {answer.unit}{effect}"
    show_done(output, answer, line)


def _setting(client: Client, name: str) -> Any:
    from toban_domain.settings import spec_of

    found = client.call("Operations.ListSettings", pb.ListSettingsRequest()).settings
    named = [item for item in found if item.name == name]
    if named:
        return named[0]
    spec_of(name)
    raise TobanError(
        ErrorCode.NOT_FOUND,
        f"the cluster has no setting {name!r}: it runs another release; see `toban settings list`",
    )


def _checked_number(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{text!r} is not a number; settings are plain numbers such as 0.5"
        )
    return text


def _plain_value(value_json: str) -> str:
    return plain_number(json.loads(value_json))


def _setting_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("NAME", lambda item: item.name),
        Column("VALUE", lambda item: _plain_value(item.value_json)),
        Column("DEFAULT", lambda item: _plain_value(item.default_json)),
        Column("RANGE", _range),
        Column("UNIT", lambda item: item.unit),
        Column("CHANGED", lambda item: age(item.updated_at, now) if item.version else NOTHING),
        Column("BY", lambda item: item.updated_by or NOTHING),
    ]
    wide = [
        Column("VERSION", lambda item: str(item.version)),
        Column("TAKES EFFECT", lambda item: item.takes_effect),
        Column("DESCRIPTION", lambda item: item.description, loose=True),
    ]
    return table, wide


def _range(item: Any) -> str:
    return f"{plain_number(item.minimum)} to {plain_number(item.maximum)}"


def _setting_page(item: Any) -> None:
    from toban_cli.tables import facts

    changed = f"{local(item.updated_at, wall_now())} by {item.updated_by}" if item.version else "never"
    facts(
        [
            ("Name", item.name),
            ("Value", f"{_plain_value(item.value_json)} {item.unit}"),
            ("Default", _plain_value(item.default_json)),
            ("Range", _range(item)),
            ("Description", item.description),
            ("Takes effect", item.takes_effect),
            ("Changed", changed),
            ("Version", str(item.version)),
        ]
    )


def _setting_names(incomplete: str) -> list[tuple[str, str]]:
    from toban_domain.settings import SETTINGS

    return [(name, spec.affects) for name, spec in SETTINGS.items() if name.startswith(incomplete)]
