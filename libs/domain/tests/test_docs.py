"""Documents that come from the code, or list what the code knows, are current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toban_domain.manifest import Document, find_problems
from toban_domain.manifest.fields import Fields

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "docs" / "manifests.md"


def test_run_states_are_current() -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "scripts" / "gen-run-states", "--check"], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr


def known_keys(kind: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every key that the reader of a kind asks for, as a path below spec."""
    asked: set[str] = set()
    plain = Fields.raw

    def raw(self: Fields, key: str) -> Any:
        asked.add(self.at(key))
        return plain(self, key)

    monkeypatch.setattr(Fields, "raw", raw)
    spec = {"steps": [{"argv": ["true"]}], "catch_up": {}} if kind == "Job" else {"interval_seconds": 5, "job": "x"}
    body = {"apiVersion": "toban/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    find_problems([Document("a", body)], check_rule=lambda rule: [])
    parents = {"spec.retry", "spec.cancel", "spec.concurrency", "spec.selector", "spec.dst"}
    return {path for path in asked if path.startswith(("spec.", "metadata."))} - parents


@pytest.mark.parametrize("kind", ["Job", "Schedule"])
def test_every_key_is_documented(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first_cells = re.findall(r"^\| (`[^|]+`) \|", MANIFESTS.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    for path in known_keys(kind, monkeypatch):
        name = re.sub(r"^(metadata|spec\.steps\[0\]|spec)\.", "", path)
        assert name in documented, f"docs/manifests.md has no row for {path}"
