"""Options of `toban run list` as a request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import typer

from toban_cli.options import parse_labels
from toban_cli.times import read_time_bound
from toban_domain.run import RunState


def run_filter(
    request: Any, *, states: Sequence[str], scope: str, labels: Sequence[str], since: str, until: str, now: datetime
) -> Any:
    """The ListRunsRequest with these parts. Raises BadParameter for an option with a wrong value, INVALID_ARGUMENT for a time that is none."""
    request.states.extend(_states(states))
    request.scope, _, request.scope_id = scope.partition(":")
    if scope.startswith(":"):
        raise typer.BadParameter(f"{scope!r} has no scope; write account:17", param_hint="--scope")
    request.labels.update(parse_labels(labels))
    if since:
        request.active_from.FromDatetime(read_time_bound("--since", since, now))
    if until:
        request.active_until.FromDatetime(read_time_bound("--until", until, now))
    return request


def _states(given: Sequence[str]) -> list[str]:
    for state in given:
        if state.upper() not in RunState.__members__:
            from toban_domain.nearest import nearest

            near = nearest(state.upper(), RunState.__members__)
            hint = f"did you mean {near}?" if near else f"use one of {', '.join(RunState)}"
            raise typer.BadParameter(f"{state!r} is not a state, {hint}", param_hint="--state")
    return [state.upper() for state in given]
