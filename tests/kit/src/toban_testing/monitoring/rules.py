"""The alerts as data, and the metrics that PromQL expressions and documents refer to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from toban_testing.monitoring.catalogue import Metric

RULES = Path("deploy/prometheus")
RUNBOOKS = Path("docs/runbooks")
NAME = re.compile(r"\btoban_[a-z0-9_]+\b")
RECORDED = re.compile(r"\btoban:[a-z0-9_:]+\b")
# A metric in a document: in backquotes and with a unit suffix, because modules and roles have similar names.
IN_DOCUMENT = re.compile(r"`(toban_[a-z0-9_]+_(?:total|seconds|bytes|ratio))\b")
# The sections of a runbook, in this order.
SECTIONS = ("What it means", "How bad it is", "What to look at", "What to do", "How to know that it is over")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: `lasting` is its `for`."""

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    runbook: str


def documents(root: Path) -> dict[Path, Any]:
    """Each rule file, parsed."""
    return {
        path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((root / RULES).glob("*.rules.yml"))
    }


def alerts(root: Path) -> list[Alert]:
    """Every alert, in the order of the files; missing fields are empty."""
    return [
        Alert(
            name=rule["alert"],
            expression=rule["expr"],
            lasting=rule.get("for", ""),
            severity=rule.get("labels", {}).get("severity", ""),
            summary=rule.get("annotations", {}).get("summary", ""),
            runbook=rule.get("annotations", {}).get("runbook", ""),
        )
        for document in documents(root).values()
        for group in document["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]


def recorded(root: Path) -> dict[str, str]:
    """Name → expression of each recorded series."""
    return {
        rule["record"]: rule["expr"]
        for document in documents(root).values()
        for group in document["groups"]
        for rule in group["rules"]
        if "record" in rule
    }


def seconds(duration: str) -> int:
    """A Prometheus duration (30s, 5m, 1h) in seconds."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    return sum(int(number) * unit[letter] for number, letter in re.findall(r"(\d+)([smhd])", duration))


def unknown(expressions: Iterable[str], found: Iterable[Metric], known: Iterable[str] = ()) -> set[str]:
    """Names in `expressions` that are neither a metric nor a recorded series of `known`."""
    series = {name for metric in found for name in metric.series}
    text = "\n".join(expressions)
    return (set(NAME.findall(text)) - series) | (set(RECORDED.findall(text)) - set(known))
