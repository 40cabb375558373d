"""Plain data as YAML that every reader takes for the same data as its JSON, for a terminal."""

from __future__ import annotations

from typing import Any

from toban_cli.sanitize import escaped


def to_yaml(value: Any) -> str:
    """One document; keys in their order."""
    from toban_manifests.yaml_text import dump_yaml

    # YAML itself counts direction marks and C1 controls as printable.
    return escaped(dump_yaml(value))
