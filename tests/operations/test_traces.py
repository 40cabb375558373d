"""Traces over real processes: from the command to the job's environment, over the queue, over retries; and log lines that name them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.otlp import Receiver, Seen, receiving
from toban_testing.run_recorder import interval_schedule
from toban_testing.site_client import signed_in
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = pytest.mark.e2e
TELL = 'echo "trace $TRACEPARENT"'
CALLER = "0af7651916cd43dd8448eb211c80319c"


def job(name: str, script: str = TELL, **spec: object) -> dict[str, object]:
    body = {"steps": [{"argv": ["sh", "-c", script]}], "allow_shell": True, **spec}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    told = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "SCHEDULER_LOG_FORMAT": "json",
    }
    home = tmp_path_factory.mktemp("traced") / "home"
    with running_stack(home, coordinators=1, executors=1, admin_webs=1, slots=4, environment=told) as stack:
        yield stack


@pytest.fixture(scope="module")
def admin(stack: Stack) -> Iterator[AdminClient]:
    with admin_of(stack) as admin:
        admin.apply(
            job("tell"),
            job("again", f'{TELL}; [ "$TOBAN_ATTEMPT" = 2 ]', retry={"max_retries": 1, "backoff_seconds": [0]}),
        )
        yield admin


def command(stack: Stack, *arguments: str, **environment: str) -> str:
    """The `toban` command in the stack; its output."""
    env = {**os.environ, "TOBAN_HOME": str(stack.home.root), **environment}
    done = subprocess.run(
        [sys.executable, "-m", "toban_cli", *arguments], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(output: str) -> int:
    """The id of the run that `run start -o json` says it has started."""
    return int(json.loads(output)["run_id"])


def told(admin: AdminClient, run_id: int, *, attempts: int = 1) -> list[tuple[str, str]]:
    """Trace and span that each attempt of a run found in its environment."""
    admin.until_ended(run_id)

    def look() -> list[str] | None:
        found = [line for line in admin.log(run_id) if line.startswith("trace ")]
        return found if len(found) == attempts else None

    lines = admin.until(look, seconds=10, of=f"a line of each of {attempts} attempts")
    found = [line.removeprefix("trace ").split("-") for line in lines]
    assert all(len(parts) == 4 and parts[3] == "01" for parts in found), lines
    return [(trace, span) for _, trace, span, _ in found]


def until_spans(admin: AdminClient, receiver: Receiver, trace: str, *names: str) -> dict[str, Seen]:
    """The spans of a trace by name, once all of `names` have arrived."""

    def look() -> dict[str, Seen] | None:
        found = {span.name: span for span in receiver.of_trace(trace)}
        return found if found.keys() >= set(names) else None

    return admin.until(look, seconds=15, of=f"{names} of trace {trace}: {[s.name for s in receiver.of_trace(trace)]}")


def test_from_the_command_into_the_job(stack: Stack, admin: AdminClient, receiver: Receiver) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "TRACEPARENT": f"00-{CALLER}-b7ad6b7169203331-01"}
    run_id = started(command(stack, "run", "start", "tell", "-o", "json", **environment))
    [(trace, job_span)] = told(admin, run_id)
    assert trace == CALLER, "the caller's trace goes all the way"
    start = "toban_proto.v1.JobControl/StartRuns"
    spans = {(s.service, s.name): s for s in receiver.of_trace(CALLER)}
    names = {("toban-cli", "toban run start"), ("toban-cli", start), ("toban-coordinator", start)}
    names |= {("toban-coordinator", "dispatch"), ("toban-executor", "run tell")}
    admin.until(
        lambda: names <= {(s.service, s.name) for s in receiver.of_trace(CALLER)},
        seconds=15,
        of=f"{names}, not {spans.keys()}",
    )
    spans = {(s.service, s.name): s for s in receiver.of_trace(CALLER)}
    chain = [
        spans["toban-cli", "toban run start"],
        spans["toban-cli", start],
        spans["toban-coordinator", start],
        spans["toban-coordinator", "dispatch"],
        spans["toban-executor", "run tell"],
    ]
    assert chain[0].parent == "b7ad6b7169203331"
    assert [below.parent for below in chain[1:]] == [above.span for above in chain[:-1]]
    assert chain[-1].span == job_span, "the job goes on below the span of its attempt"
    assert chain[-1].attributes["toban.run_id"] == run_id
    [kept] = sql(stack, "SELECT metadata FROM scheduler.job_events WHERE run_id = %(id)s AND type = 'trace'", id=run_id)
    assert CALLER in kept["metadata"]["traceparent"]


def test_over_the_queue_and_over_retries(stack: Stack, admin: AdminClient, receiver: Receiver) -> None:
    """The second attempt, which the leader reads from the queue, is in the trace of the call too."""
    environment = {"TRACEPARENT": "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    found = told(admin, started(command(stack, "run", "start", "again", "-o", "json", **environment)), attempts=2)
    assert [trace for trace, _ in found] == ["1af7651916cd43dd8448eb211c80319c"] * 2
    assert len({span for _, span in found}) == 2


def test_a_scheduled_run_has_a_trace_of_its_own(stack: Stack, admin: AdminClient, receiver: Receiver) -> None:
    admin.apply(interval_schedule("telling", "tell", seconds=1))
    due = "SELECT id FROM scheduler.runs_history WHERE schedule_name = 'telling' ORDER BY id LIMIT 2"
    rows = admin.until(lambda: r if len(r := sql(stack, due)) == 2 else None, seconds=20, of="two slots")
    sql(stack, "UPDATE scheduler.schedules SET enabled = false")
    (first, _), (second, _) = [told(admin, row["id"])[0] for row in rows]
    assert first != second
    spans = until_spans(admin, receiver, first, "dispatch", "run tell")
    assert spans["dispatch"].parent == "", "it begins with the way to its executor"
    assert spans["run tell"].parent == spans["dispatch"].span
    assert admin.until(
        lambda: {s.name for s in receiver.spans} >= {"fire", "assign"}, seconds=10, of="the leader's turns"
    )


def test_heartbeats_are_in_no_trace_and_log_lines_name_theirs(
    stack: Stack, admin: AdminClient, receiver: Receiver
) -> None:
    assert not [span for span in receiver.spans if "Heartbeat" in span.name or "Watch" in span.name]
    admin.apply(job("fails", "exit 3"))
    [run_id] = admin.start("fails")
    admin.until_ended(run_id)

    def line() -> dict[str, object] | None:
        for process in ("executor-1",):
            for text in Path(stack.processes()[process].log).read_text().splitlines():
                said = json.loads(text) if text.startswith("{") else {}
                if said.get("event") == "attempt ended" and said.get("run_id") == run_id:
                    return said
        return None

    said = admin.until(line, seconds=10, of="the line of the attempt")
    [run] = sql(stack, "SELECT token, leader_epoch FROM scheduler.job_runs WHERE id = %(id)s", id=run_id)
    assert (said["token"], said["epoch"]) == (run["token"], run["leader_epoch"])
    spans = until_spans(admin, receiver, str(said["trace_id"]), "run fails")
    assert spans["run fails"].failed


def test_the_site_passes_a_trace_on(stack: Stack, admin: AdminClient, receiver: Receiver) -> None:
    trace = "2af7651916cd43dd8448eb211c80319c"
    with signed_in(stack).open("/runs", traceparent=f"00-{trace}-b7ad6b7169203331-01") as answer:
        assert answer.status == 200
    services = {"toban-admin-web", "toban-coordinator"}

    def asked() -> list[Seen]:
        return [span for span in receiver.of_trace(trace) if span.name == "toban_proto.v1.JobReader/ListRuns"]

    admin.until(lambda: {span.service for span in asked()} == services, seconds=10, of="spans of both")
    sent = {span.span for span in asked() if span.service == "toban-admin-web"}
    assert {span.parent for span in asked() if span.service == "toban-coordinator"} <= sent
