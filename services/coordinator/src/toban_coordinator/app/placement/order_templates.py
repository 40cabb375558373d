"""Fills in the texts of orders when they are sent: from the run, its payload and the result of the run before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban_coordinator.ports.orders import OrderStep, StartOrder
from toban_coordinator.store.placement import runs_assign
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event_filter import MISSING
from toban_domain.header_secrets import split_headers
from toban_domain.outcome import AttemptKey
from toban_domain.shell_detection import templates_in_code
from toban_domain.template import (
    IN_CONTAINER,
    IN_HTTP,
    Context,
    expand,
    expand_text,
    slot_values,
    step_texts,
    texts_of,
)
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
    return any(name in text for _, text in texts_of([order.env, *map(step_texts, order.steps)]))


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
    return replace(order, steps=steps, env=env)


def _refuse_code(step: OrderStep, at: str) -> None:
    """Raises MANIFEST_INVALID. `toban apply` refuses the same; a stored definition may be older than its rule."""
    argvs = {
        "argv": step.argv,
        "container.argv": step.container.get("argv") or (),
        "kubernetes.argv": step.kubernetes.get("argv") or (),
    }
    for name, argv in argvs.items():
        for index, place in templates_in_code(argv).items():
            message = f"{at}.{name}[{index}] {place.problem}; {place.remedy}"
            raise TobanError(ErrorCode.MANIFEST_INVALID, message)


def _step(step: OrderStep, index: int, context: Context, files: Mapping[str, str]) -> OrderStep:
    at = f"steps[{index}]"
    _refuse_code(step, at)
    request = split_headers(step.http, files)
    http = {key: _filled(key, request[key], context, f"{at}.http.{key}") for key in IN_HTTP if key in request}
    container, kubernetes = (
        {key: _filled(key, tree[key], context, f"{at}.{part}.{key}") for key in IN_CONTAINER if key in tree}
        for part, tree in (("container", step.container), ("kubernetes", step.kubernetes))
    )
    return replace(
        step,
        argv=tuple(_filled("argv", step.argv, context, f"{at}.argv")),
        args=tuple(_filled("args", step.args, context, f"{at}.args")),
        http={**request, **http},
        container={**step.container, **container},
        kubernetes={**step.kubernetes, **kubernetes},
    )


def _filled(key: str, value: Any, context: Context, at: str) -> Any:
    """A `body` as JSON; else a text, or the elements of a list or mapping, each of which stays one text."""
    if key == "body":
        return expand(value, context, at)
    if isinstance(value, str):
        return expand_text(value, context, at)
    if isinstance(value, Mapping):
        return {name: expand_text(text, context, f"{at}.{name}") for name, text in value.items()}
    return [expand_text(text, context, f"{at}[{index}]") for index, text in enumerate(value)]
