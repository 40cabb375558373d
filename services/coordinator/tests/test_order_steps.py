"""Every key of a step reaches the executor, of this release and of the one before."""

import json
from typing import Any

import pytest

from toban_coordinator.adapters.order_messages import _step
from toban_domain.job import StepSpec

OF_PYTHON = {"interpreter": "/p", "warm": True, "preload": ["a", "b"]}
BODIES: dict[str, dict[str, Any]] = {
    "command": {"argv": ["a", "b"]},
    "python": {"callable": "a:b", "python_path": ["/a", "/b"], **OF_PYTHON},
    "django": {"command": "a", "args": ["b", "c"], "project": "/d", "settings": "e.f", **OF_PYTHON},
    "http": {"http": {"url": "https://a.example", "headers": {"A": "b"}, "body": ["c"]}},
    "container": {"container": {"image": "a:1", "argv": ["b"]}},
    "kubernetes": {"kubernetes": {"image": "a:1", "env": {"B": "c"}}},
}


def test_every_key_of_a_step_is_in_the_message(subtests: pytest.Subtests) -> None:
    common: dict[str, Any] = {"id": "a", "name": "n", "timeout_seconds": 7, "cancelable": True, "heartbeat_seconds": 3}
    for kind, body in BODIES.items():
        with subtests.test(kind):
            step = StepSpec(**common, type=kind, body=body)
            assert StepSpec.from_json(step.to_json()) == step
            message = _step(step)
            sent = {field.name: value for field, value in message.ListFields()}
            assert {key: sent.pop(key) for key in (*common, "type")} == {**common, "type": kind}
            trees = {key for key in sent if key.endswith("_json")}
            old = {
                key.removesuffix("_json"): json.loads(value) if key in trees else value for key, value in sent.items()
            }
            assert old == body


def test_a_key_that_the_release_before_does_not_know_is_in_the_body() -> None:
    body = {"argv": ["a"], "nice": True}
    message = _step(StepSpec(id="a", body=body))
    assert json.loads(message.body_json) == body and list(message.argv) == ["a"]
