"""What differs between two definitions."""

from __future__ import annotations

import difflib
from typing import Any


def diff_lines(before: Any, after: Any, before_title: str, after_title: str) -> list[str]:
    """A unified diff of two specs as YAML; empty when they are the same. None = there is no definition."""
    return list(difflib.unified_diff(_lines(before), _lines(after), before_title, after_title, lineterm=""))


def _lines(spec: Any) -> list[str]:
    from toban_cli.yaml_dump import to_yaml

    return [] if spec is None else to_yaml(spec).splitlines()
