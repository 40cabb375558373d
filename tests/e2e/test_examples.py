"""Every job of examples/ on a stack as `make up` starts it: each does what its file says."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, running_stack, sql

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Expected:
    """What a run of an example is started with, how it ends, and words of its output."""

    words: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    state: str = "SUCCEEDED"


def expectations(stack: Stack, work: Path) -> dict[str, Expected]:
    """For each job of examples/; `work` is a folder to write to."""
    admin = next(record.admin for record in stack.processes().values() if record.role == "coordinator")
    old, log = work / "old", work / "demo.log"
    old.mkdir()
    (old / "a.txt").write_text("old")
    os.utime(old / "a.txt", (0, 0))
    log.write_text("a line\n" * 1000)
    return {
        "hello": Expected("Hello, Ada!", {"name": "Ada"}),
        "backup-folder": Expected("packed ", {"target": str(work / "backups")}),
        "csv-to-json": Expected("wrote 5 rows", {"output": str(work / "cities.json")}),
        "disk-usage": Expected("Filesystem"),
        "long-with-timeout": Expected("1 of 1 seconds", {"seconds": 1}),
        "certificate-expiry": Expected("days left", {"path": str(stack.home.tls), "days": 7}),
        "http-check": Expected("/readyz: 200 after", {"url": f"http://{admin}/readyz"}),
        "http-request": Expected("/readyz: 200, "),
        "shell-pipeline": Expected(" s", {"folder": "/usr/bin"}),
        "python-callable": Expected("files,", {"folder": str(EXAMPLES), "top": 3}),
        "django-command": Expected("north: 70 orders in 7 days"),
        "long-with-progress": Expected("all parts done", {"seconds": 1, "parts": 4}),
        "on-event": Expected("started by hand", {"path": "/etc/hostname"}),
        "nightly-report": Expected("wrote ", {"folder": str(work / "reports")}),
        "flaky-with-retry": Expected("try 2 succeeds"),
        "cleanup-old-files": Expected("would remove", {"folder": str(old), "days": 1}),
        "rotate-log": Expected("bytes packed into", {"file": str(log), "max_kib": 1}),
        "tokyo-mornings": Expected("おはようございます"),
        "one-at-a-time": Expected(""),
        "limits": Expected("1 of 1 seconds", {"seconds": 1}),
        "word-count": Expected("", {"text": "one two three"}),
    }


FAILURES = {
    "certificate-expiry": Expected("fewer than 9000 days left", {"days": 9000}, "FAILED"),
    "http-check": Expected("no answer", {"url": "http://127.0.0.1:1/"}, "FAILED"),
    "flaky-with-retry": Expected("try 4 fails", {"succeeds_at": 9}, "FAILED"),
    "long-with-timeout": Expected("tidying up", {"seconds": 60}, "TIMED_OUT"),
    "python-callable": Expected("it takes (folder: str", {"foldr": "/etc"}, "FAILED"),
}


def documents() -> list[dict[str, Any]]:
    """Every document of examples/."""
    files = sorted(EXAMPLES.rglob("*.yaml"))
    return [body for file in files for body in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def toban(stack: Stack, *arguments: str) -> str:
    """The command as a newcomer types it."""
    environment = {**os.environ, "TOBAN_HOME": str(stack.home.root)}
    command = [sys.executable, "-m", "toban_cli", *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def external_worker(stack: Stack) -> Iterator[None]:
    """The worker of external-worker/, which serves every coordinator."""
    addresses = ",".join(stack.coordinators)
    environment = {**os.environ, "TOBAN_TLS_DIR": str(stack.home.tls / "external-worker")}
    worker = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "external-worker" / "worker.py"), addresses], env=environment
    )
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


def test_the_worker_says_how_it_is_started() -> None:
    program = [sys.executable, str(EXAMPLES / "external-worker" / "worker.py")]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.split()[:2]) == (
        1,
        ["usage:", "worker.py"],
    ) and "Traceback" not in ended.stderr


def log_of(admin: AdminClient, run_id: int, words: str) -> str:
    """The output, once it has arrived."""
    return admin.until(
        lambda: text if words in (text := "\n".join(admin.log(run_id))) else "", seconds=20, of=f"{words!r} in the log"
    )


def ends_as(admin: AdminClient, started: Mapping[int, tuple[str, Expected]]) -> None:
    """Waits for runs and looks at their ends."""
    for run_id, (name, expected) in started.items():
        run = admin.until_ended(run_id)
        assert run.state == expected.state, f"{name}: {run.state} {run.error_summary} {run.last_line}"
        if expected.words:
            log_of(admin, run_id, expected.words)


@pytest.mark.long
@pytest.mark.seed(45)
def test_every_example_does_what_it_says(tmp_path: Path) -> None:
    allow = {"SCHEDULER_HTTP_STEP_ALLOW": "127.0.0.1"}
    with running_stack(tmp_path / "home", environment=allow) as stack, admin_of(stack) as admin:
        work = tmp_path / "work"
        work.mkdir()
        expected = expectations(stack, work)
        bodies = documents()
        jobs = {body["metadata"]["name"] for body in bodies if body["kind"] == "Job"}
        # Without an engine or a cluster they wait; services/executor/tests/adapters/test_{container,kubernetes}_steps.py run such steps.
        assert jobs == {*expected, "container", "kubernetes"}, "every example is started here"
        assert len(toban(stack, "apply", "-f", str(EXAMPLES)).strip().splitlines()) >= len(bodies)
        request = (EXAMPLES / "http-request.yaml").read_text(encoding="utf-8")
        ready = str(expected["http-check"].payload["url"])
        (work / "http-request.yaml").write_text(request.replace("http://127.0.0.1:8000/", ready))
        toban(stack, "apply", "-f", str(work / "http-request.yaml"))

        started = {admin.start(name, payload=one.payload)[0]: (name, one) for name, one in expected.items()}
        failing = {"certificate-expiry": {"path": str(stack.home.tls)}}
        started |= {
            admin.start(name, payload={**one.payload, **failing.get(name, {})})[0]: (name, one)
            for name, one in FAILURES.items()
        }
        with external_worker(stack):
            ends_as(admin, started)
        by_name = {name: run_id for run_id, (name, one) in started.items() if one.state == "SUCCEEDED"}
        assert admin.run(by_name["flaky-with-retry"]).attempt == 2
        assert '"percentage": 100' in admin.run(by_name["long-with-progress"]).progress_json
        assert (work / "old" / "a.txt").exists(), "nothing is removed by default"
        assert (work / "demo.log.1.gz").exists() and not (work / "demo.log").read_text()
        event_makes_a_run(admin)
        limits_hold(stack, admin)
        nothing_failed_by_itself(admin, set(started))


def event_makes_a_run(admin: AdminClient) -> None:
    """on-event.yaml: one event makes one run, however often it is told."""
    request = pb.EmitEventRequest(
        event_type="file.arrived", payload_json='{"path": "/etc/hostname"}', dedupe_key="hostname-1"
    )
    for _ in range(2):
        admin.call(rpc.JobControlStub, "EmitEvent", request)
    [run] = admin.until(
        lambda: [one for one in admin.runs(job="on-event") if one.origin == "event"], seconds=20, of="the event's run"
    )
    assert admin.until_ended(run.id).state == "SUCCEEDED"
    log_of(admin, run.id, "(event ")


def limits_hold(stack: Stack, admin: AdminClient) -> None:
    """limits.yaml: two runs at a time and one a customer; its breaker is opened and closed by hand, as the file shows it."""

    def start(*more: str) -> int:
        answer = toban(stack, "run", "start", "limits", "-p", "seconds:=0", "-o", "json", *more)
        return int(json.loads(answer)["run_id"])

    toban(stack, "limit", "open", "job:limits", "--reason", "the server is down")
    waiting = [start("-p", f"customer={customer}") for customer in "aabcc"]
    admin.until(
        lambda: {admin.run(run).state for run in waiting} == {"DEFERRED"}, seconds=20, of="the breaker holds all back"
    )
    assert "the server is down" in toban(stack, "run", "get", str(waiting[0]))
    assert "the server is down" in toban(stack, "limit", "get", "job:limits")
    urgent = start("-p", "customer=d", "--ignore-limits", "--reason", "urgent")
    assert admin.until_ended(urgent).state == "SUCCEEDED"
    assert "ignore_limits" in toban(stack, "audit", "list")
    toban(stack, "limit", "close", "job:limits")
    assert {admin.until_ended(run).state for run in waiting} == {"SUCCEEDED"}
    live = (
        "SELECT count(*) AS runs, count(DISTINCT b.payload ->> 'customer') AS customers FROM scheduler.job_runs a"
        " JOIN scheduler.job_runs b ON b.dispatched_at <= a.dispatched_at AND b.finished_at > a.dispatched_at"
        " WHERE a.id = ANY(%(ids)s) AND b.id = ANY(%(ids)s) GROUP BY a.id"
    )
    for row in sql(stack, live, ids=waiting):
        assert row["runs"] == row["customers"] <= 2
    assert "2 (now 1)" in toban(stack, "limit", "signal", "job:limits", "hard")


def nothing_failed_by_itself(admin: AdminClient, by_hand: set[int]) -> None:
    """What the examples' own schedules did meanwhile."""

    def ended() -> list[Any]:
        return [run for run in admin.runs() if run.id not in by_hand and run.HasField("finished_at")]

    admin.until(lambda: "hello" in {run.job for run in ended()}, seconds=120, of="the minute of hello has come")
    assert {run.state for run in ended()} == {"SUCCEEDED"}


def test_rotate_log_empties_no_file_behind_a_link(tmp_path: Path) -> None:
    victim, log = tmp_path / "victim", tmp_path / "my.log"
    victim.write_text("precious\n" * 1000)
    command = [sys.executable, str(EXAMPLES / "scripts" / "rotate_log.py")]
    environment = {**os.environ, "TOBAN_PARAM_FILE": str(log), "TOBAN_PARAM_MAX_KIB": "1"}
    log.symlink_to(victim)
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1 and "not a link" in refused.stderr
    log.unlink()
    log.write_text("a line\n" * 1000)
    (tmp_path / "my.log.1.part").symlink_to(victim)
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
    assert not log.read_text() and victim.read_text() == "precious\n" * 1000


def test_no_example_writes_to_a_folder_of_everybody() -> None:
    for file in (EXAMPLES / "scripts").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert "tempfile" not in text and "/tmp" not in text, file.name
