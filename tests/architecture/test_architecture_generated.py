"""Documents that come from the code are current."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "script",
    [
        "gen-architecture",
        "gen-manifest-types",
        "gen-rest-reference",
        "gen-run-states",
        "gen-sdk-reference",
        "gen-seeds",
        "gen-settings",
        "gen-sync-client",
        "web-libraries",
    ],
)
def test_generated_documents_are_current(script: str) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "scripts" / script, "--check"], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
