"""`toban executor drain|undrain|detach`, `toban cluster demote`, `toban settings`, `toban audit`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toban_cli import report
from toban_cli.completion_values import executor_numbers
from toban_cli.options import Format, Limit, Output, told_reason
from toban_cli.output import Column, show, show_done, show_one
from toban_cli.param_types import LARGEST
from toban_cli.words import count, plain_number
from toban_domain.errors import ErrorCode, TobanError

if TYPE_CHECKING:
    from datetime import datetime

    from toban_cli.client import Client

Executor = Annotated[
    str,
    typer.Argument(
        metavar="EXECUTOR",
        help="Its number, node or instance.",
        show_default=False,
        autocompletion=executor_numbers,
    ),
]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", callback=told_reason, help="Why; kept in the audit log."),
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Until no run is left on it.")]
Patience = Annotated[
    float, typer.Option("--timeout", min=0, metavar="SECONDS", help="With --wait: give up after this time; 0 = never.")
]
Stop = Annotated[bool, typer.Option("--stop", help="End its runs; else they go on to their ends first.")]
Epoch = Annotated[
    int | None,
    typer.Option(
        "--epoch", min=1, max=LARGEST, metavar="N", help="Only if this epoch still leads; else the present one."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
SettingName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the setting.",
        show_default=False,
        autocompletion=lambda incomplete: _setting_names(incomplete),
    ),
]
Value = Annotated[str, typer.Argument(metavar="VALUE", help="The new value, or the word default.", show_default=False)]
Version = Annotated[
    int | None, typer.Option("--version", min=0, max=LARGEST, metavar="N", help="Only if it still has this version.")
]
# Between two looks at what still runs, seconds.
POLL_SECONDS = 0.5
# The server waits for the next term for 10 s.
DEMOTE_SECONDS = 15.0


def drain(
    executor: Executor,
    reason: Reason = "",
    wait: Wait = False,
    timeout: Patience = 0.0,
    output: Output = Format.TABLE,
) -> None:
    """No new runs for an executor, also after its restart; those that run go on.

    Examples:
    toban executor drain host-a --reason "new disk" --wait
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import DrainExecutorRequest

    with connect() as client:
        found = _find(client, executor)
        request = DrainExecutorRequest(worker_id=found.worker_id, reason=reason)
        answer = client.operate("DrainExecutor", request)
        if wait:
            _wait_until_idle(client, answer, timeout)
            answer = _find(client, str(found.worker_id))
        runs = _go_on(answer.running) if answer.running else "nothing runs on it"
        show_done(output, answer, f"executor {answer.worker_id} on {answer.node_id} gets no new runs; {runs}")


def undrain(executor: Executor, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """New runs for an executor that was drained.

    Examples:
    toban executor undrain host-a
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import UndrainExecutorRequest

    with connect() as client:
        found = _find(client, executor)
        request = UndrainExecutorRequest(worker_id=found.worker_id, reason=reason)
        answer = client.operate("UndrainExecutor", request)
        said = "gets runs again" if found.drained else "was not drained"
        show_done(output, answer, f"executor {answer.worker_id} on {answer.node_id} {said}")


def detach(executor: Executor, stop: Stop = False, reason: Reason = "", output: Output = Format.TABLE) -> None:
    """Give an executor up for good: its process joins again under a new number when its runs are over.

    Drain it first when it shall get no runs afterwards.

    Examples:
    toban executor detach 5
    toban executor detach 5 --stop --reason "its jobs hang"
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import DetachExecutorRequest

    with connect() as client:
        found = _find(client, executor)
        mode = "stop" if stop else "let_finish"
        request = DetachExecutorRequest(worker_id=found.worker_id, mode=mode, reason=reason)
        answer = client.operate("DetachExecutor", request)
        said = "its runs are ended and repeat elsewhere" if stop else _to_ends(answer.running)
        show_done(output, answer, f"executor {answer.worker_id} on {answer.node_id} is detached; {said}")


def demote(epoch: Epoch = None, reason: Reason = "", yes: Yes = False, output: Output = Format.TABLE) -> None:
    """Let another coordinator lead. Runs do not notice; alone, the same one leads again after two seconds.

    Examples:
    toban cluster demote --reason "patching host-a" --yes
    """
    from toban_cli.client import connect
    from toban_fencing.operator import SeenLeader
    from toban_proto.v1.coordinator_pb2 import DemoteLeaderRequest, GetClusterRequest
    from toban_runtime.clock import SystemClock

    clock = SystemClock()
    with connect() as client:
        cluster = client.read("GetCluster", GetClusterRequest())
        before = SeenLeader(epoch=cluster.epoch, worker_id=cluster.leader_worker_id, address=cluster.leader_address)
        if not yes:
            _confirm(f"{before} leads. Demote it?")
        begun = clock.monotonic()
        request = DemoteLeaderRequest(epoch=epoch or before.epoch, reason=reason)
        answer = client.operate("DemoteLeader", request, timeout=DEMOTE_SECONDS)
        seconds = clock.monotonic() - begun
    after = SeenLeader(epoch=answer.new_epoch, worker_id=answer.leader_worker_id, address=answer.leader_address)
    lines = [f"before: {before}", f"now:    {after}", f"took:   {seconds:.2f}s"]
    show_done(output, answer, lines, name=lambda done: str(done.new_epoch))


def list_settings(output: Output = Format.TABLE) -> None:
    """What can be changed while everything runs.

    Examples:
    toban settings list -o wide
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import ListSettingsRequest

    with connect() as client:
        found = client.operate("ListSettings", ListSettingsRequest()).settings
        table, wide = _setting_columns(_now())
        show(output, found, table=table, wide=wide)


def get_setting(name: SettingName, output: Output = Format.TABLE) -> None:
    """One setting: its value, range, and what it does.

    Examples:
    toban settings get executor_lease_seconds
    """
    from toban_cli.client import connect

    with connect() as client:
        found = _setting(client, name)
    show_one(output, found, page=lambda _: _setting_page(found))


def set_setting(
    name: SettingName,
    value: Value,
    reason: Reason = "",
    version: Version = None,
    output: Output = Format.TABLE,
) -> None:
    """Change a setting for every process, without a restart.

    Examples:
    toban settings set assign_ahead_seconds 60 --reason "large batches at midnight"
    toban settings set assign_ahead_seconds default
    """
    from toban_cli.client import connect
    from toban_proto.v1.coordinator_pb2 import UpdateSettingRequest

    with connect() as client:
        before = _setting(client, name)
        text = before.default_json if value == "default" else _number(value)
        request = UpdateSettingRequest(name=name, value_json=text, reason=reason, version=version)
        answer = client.operate("UpdateSetting", request)
    counts = f"; counts {answer.takes_effect}" if answer.version != before.version else "; nothing changed"
    line = f"{name}: {_words(before.value_json)} -> {_words(answer.value_json)} {answer.unit}{counts}"
    show_done(output, answer, line)


def list_audit(limit: Limit = 20, output: Output = Format.TABLE) -> None:
    """What operators did, the newest first.

    Examples:
    toban audit list --limit 100 -o wide
    """
    from toban_cli.client import connect
    from toban_cli.paging import collect
    from toban_proto.v1.coordinator_pb2 import ListAuditRequest

    with connect() as client:
        entries, _ = collect(lambda page: client.operate("ListAudit", ListAuditRequest(page=page)), "entries", limit)
    table, wide = _audit_columns(_now())
    show(output, entries, table=table, wide=wide, empty="Nobody has changed anything.")


# ---------------------------------------------------------------- executors


def _find(client: Client, word: str) -> Any:
    from toban_cli.executor_lookup import find_executor
    from toban_proto.v1.coordinator_pb2 import ListExecutorsRequest

    def look(include_off: bool) -> Any:
        return client.read("ListExecutors", ListExecutorsRequest(include_off=include_off)).executors

    return find_executor(look, word)


def _wait_until_idle(client: Client, executor: Any, timeout: float) -> None:
    from threading import Event

    from toban_proto.v1.coordinator_pb2 import ListExecutorsRequest
    from toban_runtime.clock import SystemClock

    clock, told = SystemClock(), 0
    end = clock.monotonic() + timeout
    while True:
        there = client.read("ListExecutors", ListExecutorsRequest()).executors
        running = sum(item.running for item in there if item.instance == executor.instance)
        if not running:
            return
        if timeout and clock.monotonic() >= end:
            raise TobanError(
                ErrorCode.DEADLINE_EXCEEDED,
                f"executor {executor.worker_id} still runs {running} after {timeout:g} s; it stays drained",
            )
        if running != told:
            report.note(f"waits for {count(running, 'run')} on executor {executor.worker_id}")
        told = running
        Event().wait(POLL_SECONDS)


def _go_on(running: int) -> str:
    return f"{count(running, 'run')} {'goes' if running == 1 else 'go'} on"


def _to_ends(running: int) -> str:
    return f"{_go_on(running)} to {'its end' if running == 1 else 'their ends'}"


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "nobody can be asked here: add --yes")
    typer.confirm(question, abort=True, err=True)


# ---------------------------------------------------------------- settings


def _setting(client: Client, name: str) -> Any:
    from toban_domain.settings import spec_of
    from toban_proto.v1.coordinator_pb2 import ListSettingsRequest

    found = client.operate("ListSettings", ListSettingsRequest()).settings
    named = [item for item in found if item.name == name]
    if named:
        return named[0]
    spec_of(name)
    raise TobanError(ErrorCode.NOT_FOUND, f"the cluster is of another version and has no setting {name!r}")


def _number(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"{text!r} is not a number; settings are plain numbers such as 0.5"
        )
    return text


def _words(value_json: str) -> str:
    return plain_number(json.loads(value_json))


def _setting_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    from toban_cli.formatting import NOTHING, age

    table = [
        Column("NAME", lambda item: item.name),
        Column("VALUE", lambda item: _words(item.value_json)),
        Column("DEFAULT", lambda item: _words(item.default_json)),
        Column("RANGE", _range),
        Column("UNIT", lambda item: item.unit),
        Column("CHANGED", lambda item: age(item.updated_at, now) if item.version else NOTHING),
        Column("BY", lambda item: item.updated_by or NOTHING),
    ]
    wide = [
        Column("VERSION", lambda item: str(item.version)),
        Column("COUNTS", lambda item: item.takes_effect),
        Column("WHAT IT IS", lambda item: item.description, loose=True),
    ]
    return table, wide


def _range(item: Any) -> str:
    return f"{plain_number(item.minimum)} to {plain_number(item.maximum)}"


def _setting_page(item: Any) -> None:
    from toban_cli.formatting import local
    from toban_cli.tables import facts

    changed = f"{local(item.updated_at, _now())} by {item.updated_by}" if item.version else "never"
    facts(
        [
            ("Name", item.name),
            ("Value", f"{_words(item.value_json)} {item.unit}"),
            ("Default", _words(item.default_json)),
            ("Range", _range(item)),
            ("What it is", item.description),
            ("A change counts", item.takes_effect),
            ("Changed", changed),
            ("Version", str(item.version)),
        ]
    )


def _setting_names(incomplete: str) -> list[tuple[str, str]]:
    from toban_domain.settings import SETTINGS

    return [(name, spec.affects) for name, spec in SETTINGS.items() if name.startswith(incomplete)]


# ---------------------------------------------------------------- audit


def _audit_columns(now: datetime) -> tuple[list[Column], list[Column]]:
    from toban_cli.audit_diff import changes
    from toban_cli.formatting import NOTHING, brief

    table = [
        Column("ID", lambda item: str(item.id)),
        Column("AT", lambda item: brief(item.at, now)),
        Column("ACTOR", lambda item: item.actor),
        Column("ACTION", lambda item: item.action),
        Column("TARGET", lambda item: item.target, loose=True),
        Column("REASON", lambda item: item.reason or NOTHING, loose=True),
    ]
    wide = [Column("CHANGE", lambda item: changes(item.before_json, item.after_json) or NOTHING, loose=True)]
    return table, wide


def _now() -> datetime:
    from toban_runtime.clock import SystemClock

    return SystemClock().wall()
