"""The audit of a running stack: who did what from where, chained within seconds, verified by command, tampered with by an administrator."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import sql

pytestmark = pytest.mark.e2e
JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "audited"},
    "spec": {"steps": [{"argv": ["sleep", "600"]}]},
}


@pytest.mark.seed(119)
def test_what_people_do_is_in_a_chain_that_shows_what_is_changed(
    stack: Stack, admin: AdminClient, toban: Callable[..., str], tmp_path: Path
) -> None:
    admin.apply(JOB)
    number = toban("run", "start", "audited", "-o", "name").strip()
    assert number.isdigit()
    toban("run", "cancel", number, "--reason", "not today")
    cancel, start = json.loads(toban("audit", "list", "--target", f"run {number}", "-o", "json"))
    assert (start["action"], cancel["action"], cancel["reason"]) == ("run.start", "run.cancel", "not today")
    assert {(one["address"], one["service"]) for one in (start, cancel)} == {("127.0.0.1", "admin-cli")}

    assert wait_until(lambda: "Not chained yet" not in toban("audit", "verify"), 30)
    said = toban("audit", "verify")
    head = said.splitlines()[1].removeprefix("Head: ")
    assert "the chain is whole" in said
    (tmp_path / "audit.jsonl").write_text(toban("audit", "export"))
    toban("audit", "verify", "--file", str(tmp_path / "audit.jsonl"), "--head", head)
    toban("audit", "verify", "--head", head)

    this = f"action = 'run.cancel' AND target = 'run {number}'"
    [row] = sql(stack, f"SELECT seq, actor FROM scheduler.admin_action_log WHERE {this}")
    change = f"UPDATE scheduler.admin_action_log SET actor = %(actor)s WHERE {this}"
    with pytest.raises(Exception, match="never changed or removed"):
        sql(stack, change, actor="user eve")
    change_anyway(stack, change, "user eve")
    try:
        assert f"row {row['seq']} does not fit its hash" in toban("audit", "verify", code=1)
    finally:
        change_anyway(stack, change, row["actor"])
    toban("audit", "verify")


def change_anyway(stack: Stack, statement: str, actor: str) -> None:
    """As an administrator of the database can."""
    with psycopg.connect(stack.endpoints().database_url) as connection:
        connection.execute("SET session_replication_role = replica")
        assert connection.execute(statement, {"actor": actor}).rowcount == 1
