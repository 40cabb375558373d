"""Events over a whole stack: emitted by command and in SQL while the leader is killed, each one starts its job exactly once."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, running_stack, sql

pytestmark = pytest.mark.e2e
SQL_EVENTS = 300

JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "greet"},
    "spec": {"steps": [{"argv": ["sh", "-c", 'echo "order $TOBAN_PARAM_ORDER"']}], "allow_shell": True},
}
TRIGGER = {
    "apiVersion": "toban/v1",
    "kind": "EventTrigger",
    "metadata": {"name": "greet-when-paid"},
    "spec": {
        "event_type": "order.paid",
        "job": "greet",
        "filter": {"test": {"not": True}},
        "payload": {"order": "{{ event.payload.id }}"},
    },
}
COUNT = "SELECT count(*) AS n FROM scheduler.job_runs"
Toban = Callable[..., str]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Of its own: every event and every run is counted, and the leader dies."""
    with running_stack(tmp_path / "home", executors=1) as made:
        yield made


@pytest.fixture
def toban(toban_here: Callable[..., tuple[int, str]]) -> Toban:
    def call(*words: str) -> str:
        code, said = toban_here(*words)
        assert code == 0, said
        return said

    return call


@pytest.mark.seed(103)
def test_events_become_runs_once(stack: Stack, admin: AdminClient, toban: Toban) -> None:
    admin.apply(JOB, TRIGGER)
    emit_by_command(toban, stack, admin)
    emit_in_sql(stack, admin)
    emit_while_the_leader_dies(stack, admin)


def emit_by_command(toban: Toban, stack: Stack, admin: AdminClient) -> None:
    words = ("event", "emit", "order.paid", "-p", "id:=7", "--dedupe-key", "order-7")
    first, second = toban(*words), toban(*words)
    assert "duplicate" not in first and "duplicate" in second
    toban("event", "emit", "order.paid", "-p", "id:=8", "-p", "test:=true")
    admin.until(lambda: "waiting" not in toban("event", "list"), seconds=10, of="every event is processed")
    [made] = admin.runs()
    ended = admin.until_ended(made.id)
    assert (ended.state, ended.origin, ended.trigger) == ("SUCCEEDED", "event", "greet-when-paid")
    admin.until(lambda: admin.log(made.id) == ["order 7"], seconds=20, of="its line")
    outcomes = [row["outcome"] for row in sql(stack, "SELECT outcome FROM scheduler.events_history ORDER BY id")]
    assert outcomes == ["started", "duplicate", "no_trigger"]


def emit_in_sql(stack: Stack, admin: AdminClient) -> None:
    with psycopg.connect(stack.endpoints().database_url) as connection:
        connection.execute("""SELECT scheduler.emit_event('order.paid', '{"id": 9}')""")
        connection.rollback()
        connection.execute("""SELECT scheduler.emit_event('order.paid', '{"id": 10}')""")
        connection.commit()
    admin.until(lambda: sql(stack, COUNT)[0]["n"] == 2, seconds=10, of="the run of the committed event")
    assert {run.payload_json for run in admin.runs()} == {'{"order": 7}', '{"order": 10}'}


def emit_while_the_leader_dies(stack: Stack, admin: AdminClient) -> None:
    doomed = leader_name(stack, admin)
    with psycopg.connect(stack.endpoints().database_url, autocommit=True) as connection:
        for number in range(SQL_EVENTS):
            connection.execute(
                "SELECT scheduler.emit_event('order.paid', jsonb_build_object('id', %s::int), %s)",
                (1000 + number // 2, f"pair-{number // 2}"),
            )
            if number == SQL_EVENTS // 2:
                stack.kill(doomed, signal.SIGKILL)
    admin.until(lambda: not sql(stack, "SELECT 1 FROM scheduler.events"), seconds=30, of="every event is processed")
    rows = sql(stack, "SELECT payload ->> 'order' AS number, count(*) AS n FROM scheduler.job_runs GROUP BY 1")
    assert {row["number"]: row["n"] for row in rows} == {
        **{str(1000 + pair): 1 for pair in range(SQL_EVENTS // 2)},
        "7": 1,
        "10": 1,
    }
