"""The audit of a running stack: who did what from where, chained within seconds, verified by command, tampered with by an administrator."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from toban_cli.main import run
from toban_stack.wait import wait_until
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = pytest.mark.e2e
JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "wait"},
    "spec": {"steps": [{"argv": ["sleep", "600"]}]},
}
Toban = Callable[..., tuple[int, str]]


@pytest.fixture
def toban(capfd: pytest.CaptureFixture[str]) -> Toban:
    def call(*argv: str) -> tuple[int, str]:
        code = run(argv)
        out, err = capfd.readouterr()
        return code, out + err

    return call


@pytest.mark.seed(119)
def test_what_people_do_is_in_a_chain_that_shows_what_is_changed(
    tmp_path: Path, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_stack(tmp_path / "home", executors=1) as stack, admin_of(stack) as admin:
        monkeypatch.setenv("TOBAN_HOME", str(stack.home.root))
        admin.apply(JOB)
        code, said = toban("run", "start", "wait", "-o", "name")
        number = said.strip()
        assert code == 0 and number.isdigit()
        assert toban("run", "cancel", number, "--reason", "not today")[0] == 0
        code, said = toban("audit", "list", "--target", f"run {number}", "-o", "json")
        cancel, start = json.loads(said)
        assert (start["action"], cancel["action"], cancel["reason"]) == ("run.start", "run.cancel", "not today")
        assert {(one["address"], one["service"]) for one in (start, cancel)} == {("127.0.0.1", "admin-cli")}

        assert wait_until(lambda: "Not chained yet" not in toban("audit", "verify")[1], 30)
        code, said = toban("audit", "verify")
        head = said.splitlines()[1].removeprefix("Head: ")
        assert code == 0 and "the chain is whole" in said
        code, exported = toban("audit", "export")
        (tmp_path / "audit.jsonl").write_text(exported)
        assert toban("audit", "verify", "--file", str(tmp_path / "audit.jsonl"), "--head", head)[0] == 0
        assert toban("audit", "verify", "--head", head)[0] == 0

        [row] = sql(stack, "SELECT seq FROM scheduler.admin_action_log WHERE action = 'run.cancel'")
        changed = "UPDATE scheduler.admin_action_log SET actor = 'user eve' WHERE action = 'run.cancel'"
        with pytest.raises(Exception, match="never changed or removed"):
            sql(stack, changed)
        sql(stack, f"SET session_replication_role = replica; {changed}")
        code, said = toban("audit", "verify")
        assert code == 1 and f"row {row['seq']} does not fit its hash" in said
