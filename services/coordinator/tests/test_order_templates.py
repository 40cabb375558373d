"""Templates of orders: which texts of a step are filled in, and that elements stay elements."""

import json
from dataclasses import replace
from typing import Any

import pytest

from toban_coordinator.app.placement.order_templates import _expanded, _mentions
from toban_coordinator.ports.orders import StartOrder
from toban_domain.job import JobSpec, StepSpec
from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretRef

PAYLOAD = '{"day": "2026-11-21", "ids": [1, 2], "text": "a b; c"}'
DAY, TEXT = "${{ payload.day }}", "${{ payload.text }}"


def order(step: dict[str, Any]) -> StartOrder:
    key = AttemptKey(7, 1)
    steps = (StepSpec.from_json({"id": "a", **step}),)
    return StartOrder(
        key=key, attempt=1, job_name="j", definition_version=1, steps=steps, payload_json=PAYLOAD, log_day="2026-11-21"
    )


STEPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "command", "argv": ["p", TEXT]}, {"argv": ["p", "a b; c"]}),
    ({"type": "django", "command": "c", "args": ["--day", DAY]}, {"args": ["--day", "2026-11-21"]}),
    (
        {"type": "http", "http": {"url": f"https://a.example/{DAY}", "headers": {"X-Day": DAY}, "result": "body"}},
        {"http": {"url": "https://a.example/2026-11-21", "headers": {"X-Day": "2026-11-21"}, "result": "body"}},
    ),
    (
        {"type": "http", "http": {"url": "u", "body": {"ids": "${{ payload.ids }}", "all": [f"on {DAY}", TEXT]}}},
        {"http": {"url": "u", "body": {"ids": [1, 2], "all": ["on 2026-11-21", "a b; c"]}}},
    ),
    ({"type": "http", "http": {"url": "u", "body": f"day={DAY}"}}, {"http": {"url": "u", "body": "day=2026-11-21"}}),
    (
        {"type": "container", "container": {"image": "i", "argv": ["p", TEXT], "env": {"DAY": DAY}}},
        {"container": {"image": "i", "argv": ["p", "a b; c"], "env": {"DAY": "2026-11-21"}}},
    ),
    (
        {"type": "kubernetes", "kubernetes": {"image": "i", "argv": ["p", TEXT], "env": {"DAY": DAY}}},
        {"kubernetes": {"image": "i", "argv": ["p", "a b; c"], "env": {"DAY": "2026-11-21"}}},
    ),
]


@pytest.mark.parametrize(("step", "made"), STEPS)
def test_the_texts_of_a_step(step: dict[str, Any], made: dict[str, Any]) -> None:
    assert JobSpec(name="j", steps=order(step).steps).templated
    filled = _expanded(order(step), {})
    assert isinstance(filled, StartOrder)
    [found] = filled.steps
    assert {name: found.body[name] for name in made} == made


@pytest.mark.parametrize(
    ("step", "problem", "remedy"),
    [
        ({"type": "command", "argv": ["awk", TEXT]}, "steps[0].argv[1] is code", "pass the value behind the code"),
        ({"type": "command", "argv": ["env", TEXT]}, "steps[0].argv[1] may be a program", "name the program"),
        ({"type": "command", "argv": ["psql", DAY]}, "steps[0].argv[1] could become an option", 'put "--" before it'),
        (
            {"type": "kubernetes", "kubernetes": {"argv": ["sh", "-c", TEXT]}},
            "steps[0].kubernetes.argv[2] is code",
            "echo",
        ),
        ({"type": "command", "argv": [5, TEXT]}, "a step of the stored definition is damaged", "apply the job again"),
        ({"type": "command", "argv": 5}, "a step of the stored definition is damaged", "apply the job again"),
    ],
)
def test_a_stored_definition_that_is_damaged_or_whose_value_would_be_code_is_not_sent(
    step: dict[str, Any], problem: str, remedy: str
) -> None:
    refused = _expanded(order(step), {})
    assert isinstance(refused, str) and refused.startswith(problem) and remedy in refused


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ({"type": "django", "args": ["${{ payload.none }}"]}, "steps[0].args[0]"),
        ({"type": "http", "http": {"url": "https://a/${{ payload.none }}"}}, "steps[0].http.url"),
        ({"type": "http", "http": {"url": "u", "headers": {"A": "${{ payload.none }}"}}}, "steps[0].http.headers.A"),
        ({"type": "http", "http": {"url": "u", "body": {"a": ["${{ payload.none }}"]}}}, "steps[0].http.body.a[0]"),
        ({"type": "container", "container": {"argv": ["p", "${{ payload.none }}"]}}, "steps[0].container.argv[1]"),
        ({"type": "container", "container": {"env": {"A": "${{ payload.none }}"}}}, "steps[0].container.env.A"),
        ({"type": "kubernetes", "kubernetes": {"env": {"A": "${{ payload.none }}"}}}, "steps[0].kubernetes.env.A"),
    ],
)
def test_a_missing_value_names_its_place(step: dict[str, Any], path: str) -> None:
    problem = _expanded(order(step), {})
    assert isinstance(problem, str) and problem.startswith(f"{path}: there is no payload.none")


def test_the_result_of_the_run_before_in_a_body() -> None:
    step = {"type": "http", "http": {"url": "u", "body": {"since": "${{ previous.result.cursor }}"}}}
    assert _mentions(order(step), "previous.result") and not _mentions(order(STEPS[0][0]), "previous.result")
    filled = _expanded(order(step), {7: {"cursor": "x9"}})
    assert isinstance(filled, StartOrder) and filled.steps[0].body["http"]["body"] == {"since": "x9"}


def test_a_secret_of_a_header_is_left_to_the_executor() -> None:
    """A payload that looks like a reference inserts none."""
    payload = {"text": "${{ secrets.api }}"}
    headers = {"Authorization": "Bearer ${{ secrets.api }}", "X-Text": TEXT}
    given = order({"type": "http", "http": {"url": "https://a.example/", "headers": headers}})
    secrets = (SecretRef(name="api", file="api.key"),)
    filled = _expanded(replace(given, payload_json=json.dumps(payload), secrets=secrets), {})
    assert isinstance(filled, StartOrder)
    assert filled.steps[0].body["http"] == {
        "url": "https://a.example/",
        "headers": {"X-Text": "${{ secrets.api }}"},
        "secret_headers": {"Authorization": ["Bearer ", {"file": "api.key"}, ""]},
    }
    assert "which `secrets` of the job does not have" in str(_expanded(given, {}))
