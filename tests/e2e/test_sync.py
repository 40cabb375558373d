"""`toban sync`: what functions declare by @job is on the site, runs, and ends when it is no longer declared."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toban.client import Client, Target
from toban.declaring import model
from toban_stack.stack import Stack
from toban_testing.accounts import user_token
from toban_testing.stack_fixtures import admin_of

pytestmark = pytest.mark.e2e

MODULE = """
import toban
from toban.jobs import job


@job(interval_seconds=86_400, timeout_seconds=60)
def weigh_parts(parts: int = 3) -> dict:
    toban.current_job().progress(done=parts, total=parts)
    return {"parts": parts}
"""


@pytest.fixture
def client(stack: Stack) -> Iterator[Client]:
    with admin_of(stack) as admin:
        target = Target(url=f"http://{stack.sites[0]}", token=user_token(admin, "workshop", "editor"))
    with Client(target) as made:
        yield made


def test_a_function_is_applied_runs_and_is_ended(
    client: Client, toban: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workshop.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(model, "_declared", {})

    def sync(*words: str, code: int = 0) -> str:
        sys.modules.pop("workshop", None)
        model._declared.clear()
        environment = {"TOBAN_URL": client.target.url, "TOBAN_TOKEN": client.target.token}
        return toban("sync", "workshop", *words, code=code, **environment)

    shown = sync("--dry-run")
    assert "Job weigh-parts: would be created" in shown and "Schedule weigh-parts: would be created" in shown
    assert "Job weigh-parts: created" in sync()
    assert client.jobs.get("weigh-parts").labels == {"toban-project": "workshop"}
    assert sync("--folder", str(tmp_path)).splitlines() == [
        "Job weigh-parts: unchanged",
        "Schedule weigh-parts: unchanged",
        "nothing to change",
    ]
    started = client.runs.start("weigh-parts", {"parts": 5})
    assert client.runs.wait(started.run_id, timeout=60).check().result == {"parts": 5}

    (tmp_path / "workshop.py").write_text(MODULE.replace("interval_seconds=86_400, ", ""))
    assert "Schedule weigh-parts: paused, it is no longer declared" in sync("--prune", "--project", "workshop")
    assert client.schedules.get("weigh-parts").status == "paused"
    (tmp_path / "workshop.py").write_text(MODULE)
    assert "Schedule weigh-parts: resumed, it is declared again" in sync()
    assert client.schedules.get("weigh-parts").status == "active"

    # Another module of the same project says nothing about this one, and a project is never guessed.
    (tmp_path / "storeroom.py").write_text("")
    environment = {"TOBAN_URL": client.target.url, "TOBAN_TOKEN": client.target.token}
    sys.modules.pop("workshop")
    model._declared.clear()
    shown = toban("sync", "storeroom", "--prune", "--project", "workshop", **environment)
    assert "jobs of workshop stay as they are, because these modules were not imported" in shown
    assert client.schedules.get("weigh-parts").status == "active"
    assert "--prune ends jobs of a project, so name it: --project workshop" in sync("--prune", code=65)

    assert "is of project 'workshop', and this is project 'other'" in sync("--project", "other", code=65)
    (tmp_path / "workshop.py").write_text(MODULE.replace("timeout_seconds", "timeout"))
    assert "did you mean 'timeout_seconds'?" in sync(code=65)
    (tmp_path / "workshop.py").write_text("import no_such_package")
    assert "the module 'workshop' cannot be imported: ModuleNotFoundError" in sync(code=65)
    assert "--folder is 'here'; give an absolute path on the executors" in sync("--folder", "here", code=65)
