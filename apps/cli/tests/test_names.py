"""Names on the command line: one that no object can have is refused before any call, every other arrives as it was typed, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from toban_cli.client import connect
from toban_cli.main import _NOUNS
from toban_cli.rest.routes import ROUTES, route_for
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import hooks_pb2, webhooks_pb2

Toban = Callable[..., tuple[int, str, str]]
ODD = ("a b", "a?b=c#d", "%2F", "a%b", "a+b", "a;b", "a:b", "a\\b", "...", "Zürich-日本", "a&b", "~", "x" * 300)
NUMBERS = {"id", "worker_id"}
# What else the site asks for; and what decides between routes of one method.
MORE: dict[str, dict[str, Any]] = {
    "Operations.UpdateSetting": {"value_json": "1"},
    "Operations.SetLimit": {"limit": 3},
    "Operations.SetLimit reset": {"reset": True},
    "Operations.SignalLimit": {"level": "ok"},
    "Operations.SetSecret": {"value": b"v"},
    "Accounts.LinkUser": {"issuer": "https://id.example", "subject": "8f"},
    "Accounts.UnlinkUser": {"issuer": "https://id.example"},
    "Accounts.May": {"action": "view"},
    "Accounts.UpdateGroup add": {"change": "add"},
    "Accounts.UpdateGroup delete": {"change": "delete"},
    "Accounts.UpdateGroup join": {"change": "join"},
    "Accounts.UpdateGroup leave": {"change": "leave"},
}
FILES = {"Webhooks": webhooks_pb2, "Hooks": hooks_pb2}
NAMED = [key for key, route in ROUTES.items() if set(route.parameters) - NUMBERS]


def request_for(key: str, name: str) -> tuple[str, str, Any]:
    """Service, method, and its request for an object of this name."""
    service, _, method = key.partition(" ")[0].partition(".")
    described = FILES.get(service, pb).DESCRIPTOR.services_by_name[service].methods_by_name[method]
    made: Any = getattr(FILES.get(service, pb), described.input_type.name)(**MORE.get(key, {}))
    for parameter in ROUTES[key].parameters:
        setattr(made, parameter, name)
    return service, method, made


@pytest.mark.parametrize("cluster", ["direct", "rest"], indirect=True)
def test_every_name_arrives_as_it_was_typed(cluster: Any, subtests: pytest.Subtests) -> None:
    servicers = {
        "JobReader": cluster.reader,
        "JobControl": cluster.control,
        "Operations": cluster.operations,
        "Accounts": cluster.accounts,
        "Webhooks": cluster.webhooks,
        "Hooks": cluster.hooks,
    }
    with connect() as client:
        # One function writes the names of all routes: each route with two of the names, and one with all of them.
        rotated = [(key, ODD[(index + place) % len(ODD)]) for index, key in enumerate(NAMED) for place in (0, 1)]
        for key, name in {*rotated, *product(NAMED[:1], ODD)}:
            service, method, request = request_for(key, name)
            servicers[service].answers[method] = TobanError(ErrorCode.NOT_FOUND, f"there is no {name!r}")
            servicers[service].requests.clear()
            with subtests.test(f"{key} of {name[:20]!r}"):
                with pytest.raises(TobanError) as caught:
                    client.call(f"{service}.{method}", request)
                assert (caught.value.code, caught.value.message) == (ErrorCode.NOT_FOUND, f"there is no {name!r}")
                [asked] = [one for one in servicers[service].requests if type(one) is type(request)]
                assert {getattr(asked, parameter) for parameter in ROUTES[key].parameters} == {name}


def test_the_requests_above_are_of_their_routes() -> None:
    for key in NAMED:
        fields = {name: True if name == "reset" else value for name, value in MORE.get(key, {}).items()}
        assert route_for(key.partition(" ")[0], {**fields, "name": "x"}) in (ROUTES[key], ROUTES.get(f"{key} named"))


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("job", "get"),
    ("job", "delete"),
    ("job", "disable"),
    ("job", "enable"),
    ("job", "versions"),
    ("job", "days"),
    ("job", "logs"),
    ("run", "start"),
    ("schedule", "get"),
    ("schedule", "pause"),
    ("schedule", "resume"),
    ("schedule", "delete"),
    ("schedule", "set"),
    ("trigger", "get"),
    ("trigger", "delete"),
    ("limit", "get"),
    ("limit", "reset"),
    ("limit", "open"),
    ("limit", "close"),
    ("secret", "delete"),
    ("webhook", "set"),
    ("webhook", "delete"),
    ("webhook", "test"),
    ("webhook", "redeliver"),
    ("hook", "set"),
    ("hook", "get"),
    ("hook", "delete"),
    ("hook", "test"),
    ("settings", "get"),
    ("user", "enable"),
    ("user", "disable"),
    ("user", "delete"),
    ("user", "sign-out"),
    ("user", "unlink"),
    ("user", "group", "add"),
    ("user", "group", "join", "ops"),
)


def test_the_commands_are_there() -> None:
    assert all(verb in _NOUNS[noun][1] for noun, verb, *_ in COMMANDS)


@pytest.mark.parametrize("cluster", ["direct", "rest"], indirect=True)
@pytest.mark.parametrize("name", ["", " ", ".", "..", "a/../b", "/", "a\nb", "x" * 301, "a\udcffb"])
def test_what_cannot_be_a_name_is_refused_before_any_call(cluster: Any, toban: Toban, name: str) -> None:
    for command in COMMANDS:
        code, out, err = toban(*command, name)
        if name == "" and command[:3] == ("user", "group", "join"):
            assert (code, out) == (64, "") and "join and leave need a user" in err
            continue
        # `secret set` and `delete` have the words of the domain, in which the name of a secret is narrower.
        assert code == 64 or (code == 65 and command[0] == "secret"), (command, err)
        assert out == "" and err.startswith("error: ")
        assert ("name" in err or "not text in UTF-8" in err) and "toban itself" not in err
    asked = [cluster.control, cluster.reader, cluster.operations, cluster.accounts, cluster.webhooks, cluster.hooks]
    assert [one.requests for one in asked] == [[]] * len(asked)


def test_a_filter_by_a_job_is_checked_too(toban: Toban) -> None:
    code, _, err = toban("run", "list", "--job", "a/b")
    assert code == 64 and "'--job': 'a/b' contains '/'" in err


def test_text_that_is_not_utf_8(toban: Toban) -> None:
    code, _, err = toban("run", "note", "5", "caf\udce9", "-o", "json")
    assert code == 64 and "is not text in UTF-8" in json.loads(err)["error"]["message"]


def test_a_route_never_loses_a_part_of_its_path(subtests: pytest.Subtests) -> None:
    for key, name in product(NAMED, ("", ".", "..")):
        with subtests.test(f"{key} of {name!r}"):
            with pytest.raises(TobanError, match="is not a name") as caught:
                ROUTES[key].send({**dict.fromkeys(ROUTES[key].parameters, name), "value": ""})
            assert caught.value.code is ErrorCode.INVALID_ARGUMENT
