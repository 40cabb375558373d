"""Each command that lists or shows: the same output, notes and exit code over REST as with calls of the coordinators."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from toban_cli.main import _ALONE, _NOUNS
from toban_cli.rest.routes import ROUTES
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2, hooks_pb2, joining_pb2, logs_pb2, webhooks_pb2

Toban = Callable[..., tuple[int, str, str]]
TOKEN = "toban_pat_" + "0" * 64
SERVICES = {
    "JobReader": (coordinator_pb2, "reader"),
    "JobControl": (coordinator_pb2, "control"),
    "Operations": (coordinator_pb2, "operations"),
    "Accounts": (coordinator_pb2, "accounts"),
    "Webhooks": (webhooks_pb2, "webhooks"),
    "Hooks": (hooks_pb2, "hooks"),
    "Invites": (joining_pb2, "invites"),
}
# Fields whose values have a form of their own.
TEXTS = {
    "next_cursor": "",
    "state": "FAILED",
    "from_state": "RUNNING",
    "to_state": "FAILED",
    "leader_epoch": "5",
    "cron": "0 * * * *",
    "timezone": "Europe/Berlin",
    "role": "viewer",
    "effect": "allow",
    "kind": "standard",
    "form": "generic",
    "scope": "account",
    "origin": "demand",
    "level": "ok",
}
COMMANDS = {
    ("job", "list"): (),
    ("job", "get"): ("a",),
    ("job", "versions"): ("a",),
    ("job", "days"): ("a",),
    ("schedule", "list"): (),
    ("schedule", "get"): ("a",),
    ("schedule", "next"): ("a",),
    ("schedule", "load"): (),
    ("run", "list"): (),
    ("run", "counts"): (),
    ("run", "get"): ("7",),
    ("run", "why"): ("7",),
    ("invite", "list"): (),
    ("event", "list"): (),
    ("trigger", "list"): (),
    ("trigger", "get"): ("a",),
    ("executor", "list"): (),
    ("executor", "get"): ("7",),
    ("cluster", "status"): (),
    ("cluster", "overview"): (),
    ("archive", "status"): (),
    ("group", "list"): (),
    ("group", "get"): ("a",),
    ("limit", "list"): (),
    ("limit", "get"): ("job:a",),
    ("secret", "list"): (),
    ("webhook", "list"): (),
    ("webhook", "deliveries"): (),
    ("hook", "list"): (),
    ("hook", "get"): ("a",),
    ("settings", "list"): (),
    ("settings", "get"): ("a",),
    ("user", "whoami"): (),
    ("user", "list"): (),
    ("user", "groups"): (),
    ("user", "rules"): (),
    ("user", "may"): ("bob", "run"),
    ("user", "sessions"): (),
    ("token", "list"): (),
    ("token", "own"): (),
    ("audit", "list"): (),
    ("audit", "verify"): (),
}
# Commands that show something in another way, and why they are not above.
OTHERS = {
    ("run", "logs"): "test_rest_logs",
    ("job", "logs"): "it has no route",
    ("user", "state"): "it has no route",
    ("context", "list"): "it asks no server",
    ("context", "get"): "it asks no server",
}
LISTS = ("list", "deliveries", "groups", "rules", "sessions", "own")
FORMATS = ("json", "yaml", "table", "wide", "name")


def filled(message: Any, depth: int = 0) -> Any:
    """The message with a value in each of its fields, two levels of messages deep."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            text = field.message_type.fields_by_name["value"].cpp_type == field.CPPTYPE_STRING
            getattr(message, field.name).update({"team": "ops"} if text else {"FAILED": 7})
        elif field.message_type is not None and field.message_type.name == "Timestamp":
            getattr(message, field.name).FromJsonString("2026-01-02T03:04:05.678901Z")
        elif field.message_type is not None:
            if depth < 3:
                filled(
                    getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name), depth + 1
                )
        elif field.is_repeated:
            getattr(message, field.name).append(_value(field))
        elif not field.containing_oneof or field.containing_oneof.name.startswith("_"):
            setattr(message, field.name, _value(field))
    return message


def _value(field: Any) -> Any:
    if field.type == field.TYPE_BYTES:
        return b"bytes"
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.containing_type.name == "Setting" and field.name.endswith("_json"):
            return "3"
        return '{"a": [1, "é"]}' if field.name.endswith("_json") else TEXTS.get(field.name, f"{field.name} é")
    if field.cpp_type == field.CPPTYPE_ENUM:
        return field.enum_type.values[-1].number
    if field.cpp_type == field.CPPTYPE_BOOL:
        return True
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return 2.5
    # Epochs and tokens exceed what every reader of JSON can hold.
    return 2**53 + 1 if field.name in ("epoch", "token") else 7


@pytest.fixture
def both(cluster: Any, site_before: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command with calls of the coordinators, then over REST: what each has printed."""

    def run(*argv: str) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
        # A certificate has no account, so the person is the same both ways.
        monkeypatch.setenv("TOBAN_TOKEN", TOKEN)
        monkeypatch.delenv("TOBAN_URL", raising=False)
        direct = toban(*argv)
        monkeypatch.setenv("TOBAN_URL", url)
        return direct, toban(*argv)

    with site_before(cluster) as url:
        yield run


def answer_all(cluster: Any, answer: Callable[[Any], Any]) -> None:
    """Each method of each service with `answer` of the message that it answers with."""
    for service, (module, servicer) in SERVICES.items():
        for method in module.DESCRIPTOR.services_by_name[service].methods:
            getattr(cluster, servicer).answers[method.name] = answer(GetMessageClass(method.output_type)())
    cluster.archive.status = answer(logs_pb2.ArchiveStatusResponse())
    cluster.accounts.answers["GetAccountsState"] = coordinator_pb2.GetAccountsStateResponse(has_administrator=True)


def test_each_command_that_lists_or_shows_is_here() -> None:
    shows = {
        (noun, verb)
        for noun, (_, verbs) in _NOUNS.items()
        for verb in verbs
        if verb in ("list", "get", "status", "why", "next", "own", "sessions", "groups", "rules", "state", "logs")
    }
    assert shows <= {*COMMANDS, *OTHERS} and not {*COMMANDS} & {*OTHERS}
    assert all(command[1] in _NOUNS[command[0]][1] for command in (*COMMANDS, *OTHERS)) and "list" not in _ALONE


def test_every_read_of_the_route_table_is_used_by_these_commands(cluster: Any, both: Any) -> None:
    answer_all(cluster, filled)
    cluster.reader.runs = [filled(coordinator_pb2.Run())]
    for command, more in COMMANDS.items():
        both(*command, *more)
    both("settings", "get", "name é")
    asked = {
        type(request).__name__ for _, servicer in SERVICES.values() for request in getattr(cluster, servicer).requests
    }
    reads = {key.partition(" ")[0] for key, route in ROUTES.items() if route.verb == "GET"}
    # GetRun and Authenticate keep no requests; the diagnosis is of `doctor`, and the status of the archive is GetArchive over REST.
    left = reads - {"JobReader.GetRun", "LogArchive.Status", "Accounts.Authenticate", "Operations.Diagnose"}
    wanted = {method: _request_of(method) for method in left}
    assert {method for method, request in wanted.items() if request not in asked} == set()


def _request_of(method: str) -> str:
    service, _, name = method.partition(".")
    described = SERVICES[service][0].DESCRIPTOR.services_by_name[service].methods_by_name[name]
    return str(described.input_type.name)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_output_is_the_same_both_ways(cluster: Any, both: Any, command: tuple[str, ...]) -> None:
    argv = (*command, *COMMANDS[command])
    argv = ("settings", "get", "name é") if command == ("settings", "get") else argv
    # An empty answer is one of lists: what is not there is an error.
    for prepare in (filled, lambda message: message) if command[1] in LISTS else (filled,):
        answer_all(cluster, prepare)
        cluster.reader.runs = [prepare(coordinator_pb2.Run(id=7, state="FAILED"))]
        for output in FORMATS:
            direct, rest = both(*argv, "-o", output)
            if command == ("run", "get") and direct[0] == 0:
                direct, rest = (_without_log_place(one) for one in (direct, rest))
            assert rest == direct, output
            assert "toban itself" not in rest[2], output


def _without_log_place(printed: tuple[int, str, str]) -> tuple[int, str, str]:
    """Over REST nothing says where lines are stored."""
    code, out, err = printed
    out = re.sub(r'(?ms)^  "log": .*?^}|^log:.*?(?=^\S|\Z)|^Log: [^\n]*', "", out)
    return code, out.rstrip(), err


def given(error: TobanError, _: Any) -> TobanError:
    return error


# The site asks each coordinator, and its answer names what it then knows.
OF_THE_SITE = {
    ErrorCode.UNAVAILABLE: (ErrorCode.UNAVAILABLE, "no coordinator answers: "),
    ErrorCode.DEADLINE_EXCEEDED: (ErrorCode.UNAVAILABLE, "no coordinator answers: "),
    ErrorCode.RESOURCE_EXHAUSTED: (ErrorCode.RESOURCE_EXHAUSTED, "what is wrong; the remedy (try again after 5 s)"),
    ErrorCode.UNAUTHENTICATED: (ErrorCode.UNAUTHENTICATED, "what is wrong; set another TOBAN_TOKEN"),
}


def test_an_error_is_the_same_both_ways(cluster: Any, both: Any, subtests: pytest.Subtests) -> None:
    commands = (("limit", "list"), ("job", "delete", "a"), ("user", "list"), ("webhook", "delete", "a"))
    # Each code of one command; each command with those that the site changes, and with one that it hands on.
    cases = [*product(ErrorCode, commands[:1]), *product([*OF_THE_SITE, ErrorCode.NOT_FOUND], commands[1:])]
    for code, argv in cases:
        with subtests.test(f"{code} of {' '.join(argv)}"):
            error = TobanError(code, "what is wrong; the remedy", detail={"near": ["b"], "job": "a"})
            answer_all(cluster, partial(given, error))
            direct, rest = both(*argv, "--errors", "json")
            if code not in OF_THE_SITE or rest == direct:
                assert rest == direct and json.loads(rest[2])["error"]["code"] == code
                continue
            found, (known, message) = json.loads(rest[2])["error"], OF_THE_SITE[code]
            assert (rest[0], found["code"]) == (TobanError(known, "").exit_code, known)
            assert found["message"].startswith(message)
