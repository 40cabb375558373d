"""`toban event` and `toban trigger`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.client import call, collect, connect, note_more
from toban_cli.completion_values import trigger_names
from toban_cli.formatting import NOTHING, age, given_key, local, wall_now
from toban_cli.messages import pb
from toban_cli.options import Format, Limit, Output, check_name
from toban_cli.output import Column, show, show_done, show_one
from toban_cli.watch import Watch, watch

if TYPE_CHECKING:
    from datetime import datetime

EventType = Annotated[str, typer.Argument(metavar="TYPE", help="Such as order.paid.", show_default=False)]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="K=V", help="A key of the payload: k=v is text, k:=v is JSON."),
]
Payload = Annotated[
    str, typer.Option("--payload", metavar="JSON|@FILE", help="The whole payload; --param overrides its keys.")
]
DedupeKey = Annotated[
    str,
    typer.Option(
        "--dedupe-key", metavar="KEY", help="Of the events of one type with this key, only the first starts runs."
    ),
]
OfType = Annotated[str, typer.Option("--type", metavar="TYPE", help="Only this type of event.")]
Unprocessed = Annotated[bool, typer.Option("--unprocessed", help="Only events that are not processed yet.")]
TriggerName = Annotated[
    str,
    typer.Argument(
        metavar="TRIGGER",
        help="Name of the trigger.",
        show_default=False,
        callback=check_name,
        autocompletion=trigger_names,
    ),
]


def emit(
    event_type: EventType,
    payload: Payload = "",
    param: Params = None,
    dedupe_key: DedupeKey = "",
    output: Output = Format.TABLE,
) -> None:
    """Emit an event: the triggers that match it start their jobs.

    Examples:
    toban event emit order.paid -p id:=7 --dedupe-key order-7
    toban event emit order.paid --payload @order.json
    """
    from toban_cli.payload_args import build_payload
    from toban_domain.payload import canonical_json
    from toban_runtime.ids import IdSource

    body = canonical_json(build_payload(payload, param or []))
    # With a key of our own at least: the call may be sent again to another coordinator.
    key = dedupe_key or f"cli-{IdSource().uuid()}"
    answer = call("JobControl.EmitEvent", pb.EmitEventRequest(event_type=event_type, payload_json=body, dedupe_key=key))
    line = f"event {answer.event_id} accepted"
    if answer.duplicate and dedupe_key:
        line += (
            f", but it is a duplicate and starts nothing: an event {event_type} with key {dedupe_key} is known already"
        )
    show_done(output, answer, line)


def list_events(
    of_type: OfType = "",
    unprocessed: Unprocessed = False,
    limit: Limit = 20,
    output: Output = Format.TABLE,
    watch_seconds: Watch = None,
) -> None:
    """List the events and their outcomes, newest first.

    Examples:
    toban event list --type order.paid
    toban event list --unprocessed --watch
    """
    empty = "No such events." if of_type or unprocessed else "No events. Emit one with `toban event emit TYPE`."
    with connect() as client:

        def fetch(page: Any) -> Any:
            request = pb.ListEventsRequest(page=page, event_type=of_type, unprocessed=unprocessed)
            return client.call("JobReader.ListEvents", request)

        def refresh() -> None:
            found, _ = collect(fetch, "events", limit)
            table, wide = _event_columns(wall_now())
            show(output, found, table=table, wide=wide, empty=empty)

        watch(refresh, watch_seconds, output)


def list_triggers(
    of_type: OfType = "", limit: Limit = 100, output: Output = Format.TABLE, watch_seconds: Watch = None
) -> None:
    """List the triggers: which events start which jobs.

    Examples:
    toban trigger list
    toban trigger list --type order.paid -o wide
    """
    empty = "No such triggers." if of_type else "No triggers. Make some with `toban apply -f FILE`."
    with connect() as client:

        def fetch(page: Any) -> Any:
            return client.call("JobReader.ListTriggers", pb.ListTriggersRequest(page=page, event_type=of_type))

        def refresh() -> None:
            found, more = collect(fetch, "triggers", limit)
            table, wide = _trigger_columns(wall_now())
            show(output, found, table=table, wide=wide, empty=empty)
            if more and watch_seconds is None:
                note_more("triggers", limit)

        watch(refresh, watch_seconds, output)


def get_trigger(name: TriggerName, output: Output = Format.TABLE) -> None:
    """Show one trigger.

    Examples:
    toban trigger get invoice-when-paid
    """
    [trigger] = call("JobReader.ListTriggers", pb.ListTriggersRequest(name=name)).triggers
    show_one(output, trigger, page=lambda _: _trigger_page(trigger, wall_now()))


def delete_trigger(name: TriggerName, output: Output = Format.TABLE) -> None:
    """Delete a trigger. Runs that it has started continue.

    Examples:
    toban trigger delete invoice-when-paid
    """
    answer = call("JobControl.DeleteTrigger", pb.DeleteTriggerRequest(name=name))
    show_done(output, answer, f"trigger {name} deleted", name=lambda _: name)


def _event_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("EVENT", lambda event: str(event.id)),
        Column("TYPE", lambda event: event.event_type, loose=True),
        Column("OUTCOME", lambda event: event.outcome or "waiting"),
        Column("EMITTED", lambda event: age(event.created_at, now)),
        Column("RUNS", lambda event: ",".join(str(run) for run in event.run_ids) or NOTHING, loose=True),
        Column("KEY", lambda event: given_key(event.dedupe_key) or NOTHING, loose=True),
        Column("MESSAGE", lambda event: event.message or NOTHING, loose=True),
    ]
    wide = [
        Column("PROCESSED", lambda event: age(event.processed_at, now)),
        Column("BY", lambda event: event.created_by or NOTHING, loose=True),
        Column("PAYLOAD", lambda event: event.payload_json, loose=True),
    ]
    return table, wide


def _trigger_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    table = [
        Column("NAME", lambda trigger: trigger.name, name=True),
        Column("ON", _on, loose=True),
        Column("JOB", lambda trigger: trigger.job, loose=True),
        Column("ENABLED", lambda trigger: "yes" if trigger.enabled else "no"),
        Column("UPDATED", lambda trigger: age(trigger.updated_at, now)),
        Column("LAST ERROR", lambda trigger: trigger.last_error or NOTHING, loose=True),
    ]
    wide = [
        Column("VERSION", lambda trigger: str(trigger.version)),
        Column("FILTER", lambda trigger: json.dumps(_spec(trigger).get("filter", {})), loose=True),
    ]
    return table, wide


def _trigger_page(trigger: Any, now: datetime) -> None:
    from toban_cli.tables import facts

    facts(
        [
            ("Name", trigger.name),
            ("Description", _spec(trigger).get("description", "")),
            ("On", _on(trigger)),
            ("Job", trigger.job),
            ("Enabled", "yes" if trigger.enabled else "no"),
            ("Version", str(trigger.version)),
            ("Updated", local(trigger.updated_at, now)),
            ("Last error", trigger.last_error),
        ]
    )
    report.echo("Definition:\n" + report.json_text(_spec(trigger)))


def _on(trigger: Any) -> str:
    """What it waits for: a type of event, or ends of runs."""
    ends = _spec(trigger).get("on_run_end")
    if not isinstance(ends, dict):
        return str(trigger.event_type)
    labels = ",".join(f"{key}={value}" for key, value in sorted(ends.get("labels", {}).items()))
    return f"{'|'.join(ends.get('states', ()))} of {ends.get('job') or labels}"


def _spec(trigger: Any) -> dict[str, Any]:
    spec = json.loads(trigger.spec_json or "{}")
    return spec if isinstance(spec, dict) else {}
