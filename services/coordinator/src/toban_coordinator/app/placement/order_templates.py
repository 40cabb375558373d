"""Fills in the texts of orders when they are sent: from the run, its payload and the result of the run before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban_coordinator.ports.orders import StartOrder
from toban_coordinator.store.placement import runs_assign
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event_filter import MISSING
from toban_domain.header_secrets import split_headers
from toban_domain.job import GUARDED_STEPS, StepSpec
from toban_domain.outcome import AttemptKey
from toban_domain.shell_detection import templates_in_code
from toban_domain.template import IN_STEP, Context, expand, expand_text, slot_values, step_texts, texts_of
from toban_store.pool import Pool
from toban_store.tx import autocommit

PREVIOUS = "previous.result"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOrderTemplates:
    """`OrderTemplates` with results from PostgreSQL, which are read only for orders that refer to one."""

    pool: Pool

    async def expanded(self, orders: Sequence[StartOrder]) -> Mapping[AttemptKey, StartOrder | str]:
        """Each order filled in, or why not. Raises StoreError."""
        asking = [order.key.run_id for order in orders if _mentions(order, PREVIOUS)]
        results: Mapping[int, Any] = {}
        if asking:
            async with autocommit(self.pool) as t:
                results = await runs_assign.previous_results(t, asking)
        return {order.key: _expanded(order, results) for order in orders}


def _mentions(order: StartOrder, name: str) -> bool:
    return any(name in text for _, text in texts_of([order.env, *(step_texts(step.body) for step in order.steps)]))


def _expanded(order: StartOrder, results: Mapping[int, Any]) -> StartOrder | str:
    run = {"run.id": order.key.run_id, "run.attempt": order.attempt, "run.job": order.job_name}
    trees = {"payload": json.loads(order.payload_json), PREVIOUS: results.get(order.key.run_id, MISSING)}
    context = Context(plain={**slot_values(order.slot), **run}, trees=trees)
    files = {secret.name: secret.file_name for secret in order.secrets}
    try:
        steps = tuple(_step(step, index, context, files) for index, step in enumerate(order.steps))
        env = {name: expand_text(text, context, f"env.{name}") for name, text in order.env.items()}
    except TobanError as error:
        return error.message
    except LookupError as error:
        return f"a header has secret {error}, which `secrets` of the job does not have"
    except (TypeError, AttributeError) as error:
        return f"a step of the stored definition is damaged: {error}; apply the job again"
    return replace(order, steps=steps, env=env)


def _refuse_code(body: Mapping[str, Any], at: str) -> None:
    """Raises MANIFEST_INVALID. `toban apply` refuses the same; a stored definition may be older than its rule."""
    trees = {"argv": body, **{f"{name}.argv": body.get(name, {}) for name in GUARDED_STEPS}}
    for name, tree in trees.items():
        for index, place in templates_in_code(tree.get("argv") or ()).items():
            message = f"{at}.{name}[{index}] {place.problem}; {place.remedy}"
            raise TobanError(ErrorCode.MANIFEST_INVALID, message)


def _step(step: StepSpec, index: int, context: Context, files: Mapping[str, str]) -> StepSpec:
    at = f"steps[{index}]"
    _refuse_code(step.body, at)
    body = dict(step.body)
    if "http" in body:
        body["http"] = split_headers(body["http"], files)
    for key, inner in IN_STEP.items():
        if inner and (tree := body.get(key)):
            filled = {name: _filled(name, tree[name], context, f"{at}.{key}.{name}") for name in inner if name in tree}
            body[key] = {**tree, **filled}
        elif key in body:
            body[key] = _filled(key, body[key], context, f"{at}.{key}")
    return replace(step, body=body)


def _filled(key: str, value: Any, context: Context, at: str) -> Any:
    """A `body` as JSON; else a text, or the elements of a list or mapping, each of which stays one text."""
    if key == "body":
        return expand(value, context, at)
    if isinstance(value, str):
        return expand_text(value, context, at)
    if isinstance(value, Mapping):
        return {name: expand_text(text, context, f"{at}.{name}") for name, text in value.items()}
    return [expand_text(text, context, f"{at}[{index}]") for index, text in enumerate(value)]
