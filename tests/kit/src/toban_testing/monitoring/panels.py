"""Checks the dashboard's panels against a Prometheus server: the result of each query, and its problems."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from toban_testing.monitoring import dashboard, rules

INTERVAL = "10s"
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
Query = Callable[[str], list[dict[str, Any]]]


def faults(query: Query, exposed: Iterable[str], recorded: dict[str, str]) -> list[str]:
    """Panels that are empty although processes expose every series they need (`exposed`), and legends with missing labels.

    `query` evaluates an expression as Prometheus' API does; `recorded` is name → expression of the recorded series.
    """
    known, found = set(exposed), []
    for row in dashboard.ROWS:
        for panel in row.panels:
            for expression, legend in panel.queries:
                series = query(expression.replace("$__rate_interval", INTERVAL))
                if not series and _needs(expression, recorded) <= known:
                    found.append(f"{panel.title}: nothing for {expression}")
                missing = {name for name in _LEGEND.findall(legend) for one in series if name not in one["metric"]}
                found += [f"{panel.title}: no label {name} for {legend}" for name in sorted(missing)]
    return found


def _needs(expression: str, recorded: dict[str, str]) -> set[str]:
    text = " ".join([expression, *(recorded[name] for name in rules.RECORDED.findall(expression))])
    return set(rules.NAME.findall(text))
