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
    stack: Stack, admin: AdminClient, toban_here: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    admin.apply(JOB)
    code, said = toban_here("run", "start", "audited", "-o", "name")
    number = said.strip()
    assert code == 0 and number.isdigit()
    assert toban_here("run", "cancel", number, "--reason", "not today")[0] == 0
    code, said = toban_here("audit", "list", "--target", f"run {number}", "-o", "json")
    cancel, start = json.loads(said)
    assert (start["action"], cancel["action"], cancel["reason"]) == ("run.start", "run.cancel", "not today")
    assert {(one["address"], one["service"]) for one in (start, cancel)} == {("127.0.0.1", "admin-cli")}

    assert wait_until(lambda: "Not chained yet" not in toban_here("audit", "verify")[1], 30)
    code, said = toban_here("audit", "verify")
    head = said.splitlines()[1].removeprefix("Head: ")
    assert code == 0 and "the chain is whole" in said
    code, exported = toban_here("audit", "export")
    (tmp_path / "audit.jsonl").write_text(exported)
    assert toban_here("audit", "verify", "--file", str(tmp_path / "audit.jsonl"), "--head", head)[0] == 0
    assert toban_here("audit", "verify", "--head", head)[0] == 0

    this = f"action = 'run.cancel' AND target = 'run {number}'"
    [row] = sql(stack, f"SELECT seq, actor FROM scheduler.admin_action_log WHERE {this}")
    change = f"UPDATE scheduler.admin_action_log SET actor = %(actor)s WHERE {this}"
    with pytest.raises(Exception, match="never changed or removed"):
        sql(stack, change, actor="user eve")
    change_anyway(stack, change, "user eve")
    try:
        code, said = toban_here("audit", "verify")
        assert code == 1 and f"row {row['seq']} does not fit its hash" in said
    finally:
        change_anyway(stack, change, row["actor"])
    assert toban_here("audit", "verify")[0] == 0


def change_anyway(stack: Stack, statement: str, actor: str) -> None:
    """As an administrator of the database can."""
    with psycopg.connect(stack.endpoints().database_url) as connection:
        connection.execute("SET session_replication_role = replica")
        assert connection.execute(statement, {"actor": actor}).rowcount == 1
