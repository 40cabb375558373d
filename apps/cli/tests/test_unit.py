"""`toban unit`: systemd understands each unit, and what it starts is there."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from toban_cli.commands.unit import Service

Toban = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("service", Service)
def test_systemd_understands_each_unit(service: Service, toban: Toban, tmp_path: Path) -> None:
    code, text, _ = toban("unit", service.value)
    assert code == 0
    module = f"toban_{service.value.replace('-', '_')}"
    assert f"\nExecStart={sys.executable} -m {module}\n" in text and find_spec(module) is not None
    assert f"\nEnvironmentFile=/etc/toban/{service.value}.env\n" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed here")
    unit = tmp_path / f"toban-{service.value}.service"
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    # The account is made by the operator.
    assert (done.returncode, done.stderr) == (0, "")


def test_another_python_can_be_named(toban: Toban) -> None:
    _, text, _ = toban("unit", "executor", "--python", "/opt/toban/bin/python")
    assert "\nExecStart=/opt/toban/bin/python -m toban_executor\n" in text
