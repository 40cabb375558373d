"""A file stays in one process, so that its module fixtures are made once; the files of a stack stay together, so that it is made once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Its options switch off plugins that other packages bring.
SETTINGS = Path(__file__).resolve().parents[3] / "pyproject.toml"
TESTS = """
import os
import pytest

@pytest.fixture(scope="module")
def made(request):
    with open({log!r}, "a") as log:
        log.write(request.node.path.name + " " + os.environ["PYTEST_XDIST_WORKER"] + "\\n")

@pytest.mark.parametrize("number", range(20))
def test_one(made, number):
    pass
"""


@pytest.mark.long
def test_a_module_fixture_is_made_once_with_several_processes(tmp_path: Path) -> None:
    log = tmp_path / "made.log"
    files = ["test_a.py", "test_b.py", "tests/e2e/test_c.py", "tests/e2e/test_d.py"]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(TESTS.format(log=str(log)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    words = ["-p", "toban_testing.plugin", "-n", "2", "--import-mode=importlib", "-q", "--no-loadscope-reorder"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(SETTINGS), f"--rootdir={tmp_path}", *words, *files],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "80 passed" in result.stdout, result.stdout + result.stderr
    made = sorted(line.split() for line in log.read_text().splitlines())
    assert [file for file, _ in made] == ["test_a.py", "test_b.py", "test_c.py", "test_d.py"]
    assert made[2][1] == made[3][1]
