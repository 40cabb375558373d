"""Every key of a step reaches the executor: definition, order and message have the same fields."""

import json
from dataclasses import fields

from toban_coordinator.adapters.order_messages import _step
from toban_coordinator.app.placement.start_order import _steps
from toban_domain.job import JobSpec, StepSpec


def test_every_key_of_a_step_is_in_the_message() -> None:
    values = {"str": "x", "int": 7, "bool": True, "tuple[str, ...]": ("a", "b"), "Mapping[str, Any]": {"a": ["b"]}}
    step = StepSpec(**{one.name: values[str(one.type)] for one in fields(StepSpec)})  # type: ignore[arg-type]
    assert StepSpec.from_json(step.to_json()) == step
    [order] = _steps(JobSpec(name="j", steps=(step,)), 1)
    message = _step(order)
    for one in fields(StepSpec):
        if one.name in ("worker_type", "lock_ttl_seconds"):
            # Of external steps, which no executor gets.
            continue
        given = getattr(step, one.name)
        if isinstance(given, dict):
            assert json.loads(getattr(message, f"{one.name}_json")) == given, one.name
            continue
        sent = getattr(message, one.name)
        assert (tuple(sent) if isinstance(given, tuple) else sent) == given, one.name
