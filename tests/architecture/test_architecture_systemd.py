"""The unit for systemd of docs/operations.md: one that systemd accepts, with the rights that class isolated needs."""

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from toban_executor.decide.isolation import CAPABILITIES

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def unit() -> str:
    (found,) = re.findall(r"```ini\n(\[Unit\].*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    return str(found)


def test_it_has_the_rights_of_class_isolated_and_of_namespaces() -> None:
    parser = RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit())
    service = parser["Service"]
    rights = (*CAPABILITIES, "SYS_ADMIN", "SYS_RESOURCE")
    assert service["CapabilityBoundingSet"].split() == sorted(f"CAP_{name}" for name in rights)
    assert "User" not in service and service["Delegate"] == "yes"
    folder = service["StateDirectory"]
    assert f"SCHEDULER_STATE_DIR=%S/{folder}" in service["Environment"].split()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_it(tmp_path: Path) -> None:
    file = tmp_path / "toban-executor.service"
    file.write_text(unit().replace("/opt/toban/bin/python", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, timeout=60, check=False)
    # It also complains about what it does not find on a machine that systemd does not run.
    assert [line for line in done.stderr.splitlines() if file.name in line] == []
