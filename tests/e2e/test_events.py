"""Events over a whole stack: emitted by command and in SQL, also while the leader is killed, each one starts its job exactly once."""

import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, sql

pytestmark = pytest.mark.e2e
SQL_EVENTS = 300

JOB = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "greet-payer"},
    "spec": {"steps": [{"argv": ["sh", "-c", 'echo "order $TOBAN_PARAM_ORDER"']}], "allow_shell": True},
}
TRIGGER = {
    "apiVersion": "toban/v1",
    "kind": "EventTrigger",
    "metadata": {"name": "greet-when-paid"},
    "spec": {
        "event_type": "events.paid",
        "job": "greet-payer",
        "filter": {"test": {"not": True}},
        "payload": {"order": "{{ event.payload.id }}"},
    },
}
RUNS = "FROM scheduler.job_runs WHERE job_name = 'greet-payer'"
Toban = Callable[..., str]


@pytest.fixture
def triggered(admin: AdminClient, toban: Toban) -> Iterator[None]:
    """A job and its trigger, which does not act after the test."""
    admin.apply(JOB, TRIGGER)
    yield
    toban("trigger", "delete", "greet-when-paid")


@pytest.mark.seed(103)
def test_events_become_runs_once(stack: Stack, admin: AdminClient, toban: Toban, triggered: None) -> None:
    emit_by_command(toban, stack, admin)
    emit_in_sql(stack, admin)


def emit_by_command(toban: Toban, stack: Stack, admin: AdminClient) -> None:
    words = ("event", "emit", "events.paid", "-p", "id:=7", "--dedupe-key", "order-7")
    first, second = toban(*words), toban(*words)
    assert "duplicate" not in first and "duplicate" in second
    toban("event", "emit", "events.paid", "-p", "id:=8", "-p", "test:=true")
    admin.until(lambda: "waiting" not in toban("event", "list"), of="every event is processed")
    [made] = admin.runs(job="greet-payer")
    ended = admin.until_ended(made.id)
    assert (ended.state, ended.origin, ended.trigger) == ("SUCCEEDED", "event", "greet-when-paid")
    admin.until(lambda: admin.log(made.id) == ["order 7"], of="its line")
    outcomes = sql(stack, "SELECT outcome FROM scheduler.events_history WHERE event_type = 'events.paid' ORDER BY id")
    assert [row["outcome"] for row in outcomes] == ["started", "duplicate", "no_trigger"]


def emit_in_sql(stack: Stack, admin: AdminClient) -> None:
    with psycopg.connect(stack.endpoints().database_url) as connection:
        connection.execute("""SELECT scheduler.emit_event('events.paid', '{"id": 9}')""")
        connection.rollback()
        connection.execute("""SELECT scheduler.emit_event('events.paid', '{"id": 10}')""")
        connection.commit()
    admin.until(
        lambda: sql(stack, f"SELECT count(*) AS n {RUNS}")[0]["n"] == 2, seconds=10, of="the run of the committed event"
    )
    assert {run.payload_json for run in admin.runs(job="greet-payer")} == {'{"order": 7}', '{"order": 10}'}


@pytest.mark.long
def test_events_of_which_the_leader_dies_become_runs_once(
    stack: Stack, admin: AdminClient, triggered: None, whole_afterwards: None
) -> None:
    doomed = leader_name(stack, admin)
    with psycopg.connect(stack.endpoints().database_url, autocommit=True) as connection:
        for number in range(SQL_EVENTS):
            connection.execute(
                "SELECT scheduler.emit_event('events.paid', jsonb_build_object('id', %s::int), %s)",
                (1000 + number // 2, f"pair-{number // 2}"),
            )
            if number == SQL_EVENTS // 2:
                stack.kill(doomed, signal.SIGKILL)
    admin.until(lambda: not sql(stack, "SELECT 1 FROM scheduler.events"), of="every event is processed")
    rows = sql(stack, f"SELECT payload ->> 'order' AS number, count(*) AS n {RUNS} GROUP BY 1")
    found = {row["number"]: row["n"] for row in rows if int(row["number"]) >= 1000}
    assert found == {str(1000 + pair): 1 for pair in range(SQL_EVENTS // 2)}
