"""A stack from outside: a run starts the next one by its end, is repeated, noted, and its job deleted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from toban_cli.main import run
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, running_stack

pytestmark = pytest.mark.e2e
Toban = Callable[..., str]


def job(name: str, script: str) -> dict[str, object]:
    spec = {"steps": [{"argv": ["sh", "-c", script]}], "allow_shell": True}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


CHAIN = {
    "apiVersion": "toban/v1",
    "kind": "EventTrigger",
    "metadata": {"name": "load-after-extract"},
    "spec": {
        "on_run_end": {"job": "extract"},
        "job": "load",
        "filter": {"result.rows": {"gt": 0}},
        "payload": {"rows": "{{ result.rows }}", "of": "{{ run.id }}"},
    },
}


@pytest.fixture
def toban(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Toban:
    def call(*argv: str) -> str:
        assert run(argv) == 0, capfd.readouterr()
        return capfd.readouterr().out

    return call


def test_from_one_run_to_the_next(tmp_path: Path, toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_stack(tmp_path / "home", executors=1) as stack, admin_of(stack) as admin:
        monkeypatch.setenv("TOBAN_HOME", str(stack.home.root))
        admin.apply(
            job("extract", "echo '::output {\"rows\": 3}::'"), job("load", 'echo "rows $TOBAN_PARAM_ROWS"'), CHAIN
        )
        toban("run", "start", "extract", "--wait")
        follow(admin, count=2)
        toban("run", "rerun", "1", "--wait", "--reason", "once more")
        follow(admin, count=4)
        toban("run", "note", "1", "looked into it")
        shown = toban("run", "get", "1")
        assert "looked into it" in shown and "repeats it: once more" in shown
        toban("run", "rerun", "--job", "load", "--state", "SUCCEEDED", "--yes")
        follow(admin, count=6)
        assert "trigger load-after-extract deleted" in toban("job", "delete", "extract", "--with-triggers")
        assert "SUCCEEDED" in toban("run", "get", "1")


def follow(admin: AdminClient, *, count: int) -> None:
    """Waits until there are so many runs and all have succeeded; those of `load` that a trigger started know what they follow."""
    admin.until(lambda: len(list(admin.runs())) == count, seconds=20, of=f"{count} runs")
    for found in admin.runs():
        ended = admin.until_ended(found.id)
        assert ended.state == "SUCCEEDED"
        if ended.trigger:
            assert ended.payload_json == f'{{"of": {ended.after_run}, "rows": 3}}' and ended.chain_depth == 1
