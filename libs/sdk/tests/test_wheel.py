"""The wheel of `toban-sdk`: what a program that Toban runs gets needs the standard library alone."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from toban.version import VERSION

SDK = Path(__file__).parents[1]
SOURCES = SDK / "src/toban"

USE = """
import json, sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
import toban
import toban.client
job = toban.current_job()
job.progress(done=1, total=2)
job.save_checkpoint({"at": 1})
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps({
    "file": toban.__file__,
    "managed": job.is_managed,
    "cancelled": job.cancelled(),
    "checkpoint": job.checkpoint(),
    "foreign": sorted(loaded - sys.stdlib_module_names - {"toban"}),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since builds may write beside the sources."""
    folder = tmp_path_factory.mktemp("sdk")
    copy = folder / "libs/sdk"
    shutil.copytree(SDK, copy, ignore=shutil.ignore_patterns("__pycache__", "dist", "tests"))
    shutil.copy(SDK.parents[1] / "VERSION", folder)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [built] = (folder / "dist").iterdir()
    return built


def metadata(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode().splitlines()


def test_it_holds_the_package_whole_and_nothing_else(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {
        f"toban/{path.relative_to(SOURCES)}" for path in SOURCES.rglob("*") if path.suffix in (".py", ".typed", ".html")
    }
    assert packed == wanted
    assert "toban/py.typed" in packed


def test_it_is_small_and_knows_nothing_of_this_clone(wheel: Path) -> None:
    assert wheel.stat().st_size < 150_000
    with zipfile.ZipFile(wheel) as archive:
        texts = {name: archive.read(name) for name in archive.namelist()}
    clone = str(SDK.parents[1]).encode()
    assert [name for name, text in texts.items() if clone in text] == []


def test_its_version_is_the_one_that_it_reports(wheel: Path) -> None:
    assert f"Version: {VERSION}" in metadata(wheel)


def test_it_requires_no_package_without_an_extra(wheel: Path) -> None:
    lines = metadata(wheel)
    assert "Name: toban-sdk" in lines
    assert "Requires-Python: >=3.11" in lines
    assert not [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert "# toban-sdk" in lines, "its page has the README"
    assert "](../" not in "\n".join(lines), "a link of the clone is dead there"


def test_it_has_the_licence_and_so_has_each_other_package(wheel: Path) -> None:
    licence = (SDK.parents[1] / "LICENSE").read_text()
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert archive.read(name).decode() == licence
    packages = list(SDK.parents[1].glob("*/*/pyproject.toml"))
    assert len(packages) > 10
    assert [str(one.parent) for one in packages if one.with_name("LICENSE").read_text() != licence] == []


@pytest.mark.long
def test_an_installed_one_works_without_any_other_package(wheel: Path, tmp_path: Path) -> None:
    """`-I -S`: neither this environment's packages nor the sources of the workspace are in reach."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    used = subprocess.run(
        [sys.executable, "-I", "-S", "-c", USE, str(site)], capture_output=True, text=True, check=True, env={}
    )
    said: dict[str, Any] = json.loads(used.stdout)
    assert Path(said.pop("file")) == site / "toban/__init__.py"
    assert said == {"managed": False, "cancelled": False, "checkpoint": None, "foreign": []}
