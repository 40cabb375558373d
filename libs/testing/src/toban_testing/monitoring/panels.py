"""What the dashboard's panels would show of a Prometheus: each query's answer, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from toban_testing.monitoring import dashboard, rules

INTERVAL = "10s"
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
Query = Callable[[str], list[dict[str, Any]]]


def faults(query: Query, told: Iterable[str], recorded: dict[str, str]) -> list[str]:
    """Panels that stay empty although processes tell every series that they need (`told`), and legends of labels that no series has.

    `query` answers an expression as Prometheus' API does; `recorded` is name → expression of the recorded series.
    """
    known, found = set(told), []
    for row in dashboard.ROWS:
        for panel in row.panels:
            for expression, legend in panel.queries:
                answer = query(expression.replace("$__rate_interval", INTERVAL))
                if not answer and _needs(expression, recorded) <= known:
                    found.append(f"{panel.title}: nothing for {expression}")
                missing = {
                    name for name in _LEGEND.findall(legend) for series in answer if name not in series["metric"]
                }
                found += [f"{panel.title}: no label {name} for {legend}" for name in sorted(missing)]
    return found


def _needs(expression: str, recorded: dict[str, str]) -> set[str]:
    text = " ".join([expression, *(recorded[name] for name in rules.RECORDED.findall(expression))])
    return set(rules.NAME.findall(text))
