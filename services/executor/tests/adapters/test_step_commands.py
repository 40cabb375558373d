"""Steps of orders: the same from a coordinator of this release as from one of the release before."""

import json
from typing import Any

import pytest

from toban_executor.adapters.step_commands import step_order
from toban_executor.decide.models import StepOrder
from toban_proto.v1.executor_pb2 import Step

PYTHON: dict[str, Any] = {"callable": "shop.report:make", "python_path": ["/srv", "/lib"]}
DJANGO: dict[str, Any] = {"command": "sync", "args": ["-v", "2"], "project": "/srv", "interpreter": "/srv/bin/python"}
WARM: dict[str, Any] = {"warm": True, "preload": ["shop.models"]}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("", {"argv": ["echo", "ä", ""]}),
    ("command", {"argv": ["echo", "hello"]}),
    ("python", PYTHON),
    ("python", {**PYTHON, "interpreter": "/srv/bin/python", "warm": True}),
    ("python", {**PYTHON, **WARM}),
    ("django", DJANGO),
    ("django", {**DJANGO, "settings": "shop.settings", "warm": True}),
    ("django", {**DJANGO, **WARM}),
    ("http", {"http": {"url": "https://a.example", "body": {"b": 1, "a": None}}}),
    ("container", {"container": {"image": "a:1", "argv": ["b"]}}),
    ("kubernetes", {"kubernetes": {"image": "a:1", "limits": {"cpus": 0.5}}}),
]
COMMON: dict[str, Any] = {"id": "a", "name": "n", "timeout_seconds": 7, "cancelable": True, "heartbeat_seconds": 3}


def test_both_forms_of_a_step_are_the_same_order(subtests: pytest.Subtests) -> None:
    for kind, body in BODIES:
        with subtests.test(kind, **body):
            fields = {f"{key}_json" if key == kind else key: value for key, value in body.items()}
            old = {key: json.dumps(value) if key.endswith("_json") else value for key, value in fields.items()}
            made = step_order(Step(type=kind, body_json=json.dumps(body), **COMMON), allow_shell=False)
            assert made == step_order(Step(type=kind, **old, **COMMON), allow_shell=False)
            assert made.stdin == json.dumps(body[kind]) if kind in body else made.argv


def test_a_coordinator_of_this_release_fills_both_forms_and_the_body_counts() -> None:
    message = Step(type="command", argv=["old"], body_json='{"argv": ["new"]}')
    assert step_order(message, allow_shell=False) == StepOrder(type="command", argv=("new",), cancelable=False)


def test_a_body_that_cannot_be_read_has_no_program(subtests: pytest.Subtests) -> None:
    wrong = [
        "{",
        "[]",
        "1",
        '"text"',
        "null",
        '{"argv": 1}',
        '{"argv": [1]}',
        '{"argv": "ls"}',
        '{"argv": ["\\ud800"]}',
        "[" * 100_000,
    ]
    texts = [f'{{"{key}": {value}}}' for key in ("callable", "command") for value in (1, "null", '["a"]')]
    for kind in ("command", "python", "django", "http", "container", "kubernetes", "external"):
        for text in [*wrong, *texts]:
            with subtests.test(kind, text=text[:40]):
                made = step_order(Step(type=kind, body_json=text, id="a"), allow_shell=False)
                assert (made.warm_argv, made.stdin) == ((), "")
                if kind in ("command", "http"):
                    assert made.argv == ()
