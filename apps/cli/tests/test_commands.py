"""The commands against a cluster over mTLS: requests, tables, JSON, exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2
from toban_proto.v1.common_pb2 import ErrorLine
from toban_runtime.clock import SystemClock

Toban = Callable[..., tuple[int, str, str]]
EPOCH = (1 << 51) | (3 << 27)


def ago(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(SystemClock().wall() - timedelta(seconds=seconds))
    return stamp


def a_run(state: str = "SUCCEEDED", **fields: Any) -> pb.Run:
    given: dict[str, Any] = {
        "id": 12,
        "job": "hello",
        "state": state,
        "attempt": 1,
        "max_attempts": 1,
        "token": 7,
        "executor": "node-1",
        "scheduled_for": ago(90),
        "started_at": ago(90),
        "finished_at": ago(88.5),
        "exit_code": 0,
        "last_line": "Hello, world!",
        "payload_json": '{"name":"Ada"}',
        "origin": "demand",
        "definition_version": 2,
        "leader_epoch": EPOCH,
    }
    return pb.Run(**{key: value for key, value in {**given, **fields}.items() if value is not None})


def squeezed(text: str) -> str:
    return "\n".join(" ".join(part.split()) for part in text.splitlines())


def line(seq: int, text: str, stream: int = logs_pb2.LOG_STREAM_STDOUT) -> logs_pb2.LogLine:
    return logs_pb2.LogLine(seq=seq, text=text.encode(), stream=stream)  # type: ignore[arg-type]


def test_job_list(cluster: Any, toban: Toban) -> None:
    jobs = [
        pb.Job(name="hello", version=3, enabled=True, updated_at=ago(7200), description="Says hello", last_run=a_run()),
        pb.Job(name="quiet", version=1, enabled=False, updated_at=ago(60)),
    ]
    cluster.reader.answers["ListJobs"] = pb.ListJobsResponse(jobs=jobs)
    code, out, err = toban("job", "list")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "NAME   VERSION  ENABLED  LAST RUN  STATE      UPDATED  DESCRIPTION",
        "hello  3        yes      90s ago   SUCCEEDED  2h ago   Says hello",
        "quiet  1        no       -         -          60s ago",
    ]


def test_lists_that_are_empty_say_what_to_do(cluster: Any, toban: Toban) -> None:
    cluster.reader.answers |= {"ListJobs": pb.ListJobsResponse(), "ListRuns": pb.ListRunsResponse()}
    assert toban("job", "list") == (0, "No jobs. Make some with `toban apply -f FILE`.\n", "")
    assert toban("run", "list") == (0, "No runs. Start one with `toban run start JOB`.\n", "")


def test_job_get(cluster: Any, toban: Toban) -> None:
    job = pb.Job(name="hello", version=3, enabled=True, spec_json='{"name":"hello"}', updated_at=ago(7200))
    job.schedules.add(name="often", rule="every 5 seconds")
    cluster.reader.answers["GetJob"] = job
    code, out, _ = toban("job", "get", "hello")
    assert code == 0
    assert "Schedules: often (every 5 seconds)" in out
    assert out.endswith('Definition:\n{\n  "name": "hello"\n}\n')
    code, out, _ = toban("job", "get", "hello", "-o", "json")
    assert json.loads(out)["spec"] == {"name": "hello"}


def test_schedule_list(cluster: Any, toban: Toban) -> None:
    schedule = pb.Schedule(
        name="often",
        job="hello",
        enabled=True,
        status="active",
        rule="every 5 seconds",
        next_run_at=ago(-65),
        last_run_at=ago(3),
    )
    cluster.reader.answers["ListSchedules"] = pb.ListSchedulesResponse(schedules=[schedule])
    code, out, _ = toban("schedule", "list", "--job", "hello")
    assert code == 0
    assert cluster.reader.requests[-1].job == "hello"
    assert out.splitlines()[0].split() == ["NAME", "JOB", "RULE", "STATUS", "NEXT", "LAST", "WHY"]
    assert "every 5 seconds  active" in out
    assert "(in 64s)  3s ago" in out


@pytest.mark.parametrize("flag", ["--ahead", "-a"])
def test_run_list_ahead(cluster: Any, toban: Toban, flag: str) -> None:
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse()
    assert toban("run", "list", flag)[0] == 0
    assert cluster.reader.requests[-1].include_ahead


def test_run_list(cluster: Any, toban: Toban) -> None:
    runs = [
        a_run(),
        a_run("FAILED", id=13, exit_code=None, signal=9, last_line="", error_summary="killed by SIGKILL"),
        a_run(
            "PENDING",
            id=14,
            started_at=None,
            finished_at=None,
            exit_code=None,
            executor="",
            last_line="",
            scheduled_for=ago(-30),
        ),
    ]
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=runs)
    code, out, err = toban("run", "list", "--job", "hello", "--state", "failed", "--state", "PENDING", "--limit", "3")
    assert (code, err) == (0, "")
    request = cluster.reader.requests[-1]
    assert (request.job, list(request.states), request.page.limit) == ("hello", ["FAILED", "PENDING"], 3)
    assert not request.include_ahead
    assert out.splitlines() == [
        "RUN  JOB    STATE      DUE      TOOK  EXIT     TRY  EXECUTOR  LAST LINE",
        "12   hello  SUCCEEDED  90s ago  1.5s  0        1    node-1    Hello, world!",
        "13   hello  FAILED     90s ago  1.5s  SIGKILL  1    node-1    killed by SIGKILL",
        "14   hello  PENDING    in 29s   -     -        1    -",
    ]


def test_a_failed_run_shows_why_first(cluster: Any, toban: Toban) -> None:
    attempt = pb.Attempt(
        token=1, attempt=1, state="FAILED", reason="exit_code", error_summary="exit code 1",
        error_lines=[ErrorLine(seq=9, text="Traceback"), ErrorLine(seq=12, text="ValueError: no")],
    )  # fmt: skip
    failed = a_run("FAILED", exit_code=1, error_summary="exit code 1", reason="exit_code", last_line="ValueError: no")
    failed.attempts.append(attempt)
    cluster.reader.runs = [failed]
    code, out, _ = toban("run", "get", "12")
    assert code == 0 and "Why: ValueError: no (exit code 1)" in squeezed(out)
    assert "Last lines of attempt 1 (all: toban run logs 12)\n   9  Traceback\n  12  ValueError: no\n" in out
    assert "Last line:" not in out


def test_run_get(cluster: Any, toban: Toban) -> None:
    run = a_run()
    run.attempts.add(
        attempt=1, state="SUCCEEDED", executor="node-1", started_at=ago(90), finished_at=ago(88.5), exit_code=0
    )
    run.events.add(at=ago(90), type="started", from_state="ASSIGNED", to_state="RUNNING", actor="executor")
    cluster.reader.runs = [run]
    code, out, _ = toban("run", "get", "12")
    assert code == 0
    for text in ("State: SUCCEEDED", "Job: hello (version 2)", "Took: 1.5s", "ASSIGNED → RUNNING"):
        assert text in squeezed(out)
    code, out, _ = toban("run", "get", "12", "-o", "json")
    printed = json.loads(out)
    assert (printed["id"], printed["leader_epoch"], printed["payload"]) == (12, str(EPOCH), {"name": "Ada"})
    assert printed["attempts"][0]["token"] == "0"


def test_a_run_that_is_not_there(cluster: Any, toban: Toban) -> None:
    assert toban("run", "get", "99") == (66, "", "error: there is no run 99; see `toban run list`\n")
    code, out, err = toban("run", "get", "99", "-o", "json")
    assert (code, out) == (66, "")
    assert json.loads(err)["error"] | {"detail": None} == {
        "code": "RUN_NOT_FOUND",
        "message": "there is no run 99; see `toban run list`",
        "exit_code": 66,
        "detail": None,
    }


def test_apply_twice(cluster: Any, toban: Toban, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "job.yml").write_text(
        "apiVersion: toban/v1\nkind: Job\nmetadata: {name: x}\nspec: {working_dir: ., steps: [{argv: [/bin/true]}, "
        "{type: python, callable: 'a:b', python_path: [., ../lib, /abs], "
        "interpreter: ../venv/bin/python}, {type: django, command: c, project: ., interpreter: /p/python}]}\n"
    )
    (tmp_path / "a.yaml").write_text(
        "apiVersion: toban/v1\nkind: Schedule\nmetadata: {name: s}\nspec: {job: x, interval_seconds: 5}\n"
    )
    (tmp_path / "notes.txt").write_text("not ours")
    applied = [
        pb.Applied(kind="Schedule", name="s", action="created"),
        pb.Applied(kind="Job", name="x", action="unchanged", version=1),
    ]
    cluster.control.answers["Apply"] = pb.ApplyResponse(applied=applied)
    assert toban("apply", "-f", str(tmp_path)) == (0, "schedule s created\njob x unchanged\n", "")
    sent = [json.loads(manifest.json) for manifest in cluster.control.requests[0].manifests]
    assert [body["metadata"]["name"] for body in sent] == ["s", "x"]
    assert sent[1]["spec"]["working_dir"] == str(tmp_path / "b")
    assert sent[1]["spec"]["steps"][1]["python_path"] == [str(tmp_path / "b"), str(tmp_path / "lib"), "/abs"]
    assert sent[1]["spec"]["steps"][1]["interpreter"] == str(tmp_path / "venv/bin/python")
    assert sent[1]["spec"]["steps"][2]["project"] == str(tmp_path / "b")
    assert sent[1]["spec"]["steps"][2]["interpreter"] == "/p/python"
    monkeypatch.chdir(tmp_path)
    assert toban("apply", "-f", ".")[0] == 0
    assert [json.loads(manifest.json) for manifest in cluster.control.requests.pop().manifests] == sent
    code, out, _ = toban("apply", "-f", str(tmp_path), "--dry-run", "--force", "--reason", "a test", "-o", "json")
    assert cluster.control.requests[1].dry_run and cluster.control.requests[1].reason == "a test"
    assert [request.force for request in cluster.control.requests] == [False, True]
    printed = {
        "kind": "Job",
        "name": "x",
        "action": "unchanged",
        "version": 1,
        "next_slots": [],
        "note": "",
        "clock_change": "",
    }
    assert json.loads(out)[1] == printed
    assert code == 0


def test_apply_says_when_a_schedule_fires_next(cluster: Any, toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("apiVersion: toban/v1\nkind: Schedule\nmetadata: {name: s}\nspec: {job: x, interval_seconds: 5}\n")
    at = Timestamp()
    at.FromJsonString("2026-11-22T02:00:00Z")
    slots = [pb.NextSlot(at=at, local="2026-11-22T03:00:00+01:00", rule_note="gap shift")] * 4
    applied = [
        pb.Applied(kind="Schedule", name="s", action="updated", next_slots=slots, clock_change="2027-03-28: x"),
        pb.Applied(kind="Schedule", name="t", action="created", note="paused: holidays"),
    ]
    cluster.control.answers["Apply"] = pb.ApplyResponse(applied=applied)
    line = "  2026-11-22T03:00:00+01:00 = 2026-11-22T02:00:00Z, gap shift\n"
    assert (
        toban("apply", "-f", str(file))[1]
        == f"schedule s updated\n{line * 3}  clocks change: 2027-03-28: x\nschedule t created\n  paused: holidays\n"
    )
    assert toban("apply", "-f", str(file), "-o", "name")[1] == "schedule/s\nschedule/t\n"
    assert "2026-11-22T03:00:00+01:00" in toban("apply", "-f", str(file), "-o", "wide")[1]


def test_a_slot_in_utc_is_told_once() -> None:
    from toban_cli.commands.apply import format_slot

    at = Timestamp()
    at.FromJsonString("2026-11-22T02:00:00Z")
    assert format_slot(pb.NextSlot(at=at, local="2026-11-22T02:00:00+00:00")) == "2026-11-22T02:00:00Z"


def test_mistakes_that_the_server_finds_are_one_line_each(cluster: Any, toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "apiVersion: toban/v1\nkind: Schedule\nmetadata: {name: s}\nspec: {job: nope, interval_seconds: 5}\n"
    )
    detail = {
        "errors": [
            {"source": "a.yaml", "path": "spec.job", "message": "there is no job 'nope'", "hint": "apply it first"}
        ]
    }
    cluster.control.answers["Apply"] = TobanError(ErrorCode.MANIFEST_INVALID, "one problem", detail=detail)
    assert toban("apply", "-f", str(file)) == (
        65,
        "",
        "error: a.yaml: spec.job: there is no job 'nope'; apply it first\n",
    )


def test_run_start(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    code, out, err = toban(
        "run", "start", "hello", "--payload", '{"a":1,"name":"x"}', "-p", "name=Ada", "-p", "count:=3"
    )
    assert (code, out, err) == (0, "run 12 started\n", "")
    request = cluster.control.requests[0].runs[0]
    assert json.loads(request.payload_json) == {"a": 1, "name": "Ada", "count": 3}
    # Without a key of the caller the command makes one: it may be sent again to another coordinator.
    assert request.idempotency_key.startswith("cli-")
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12)])
    code, out, _ = toban("run", "start", "hello", "--idempotency-key", "k1", "-o", "json")
    assert json.loads(out) == {"run_id": 12, "created": False}
    assert cluster.control.requests[1].runs[0].idempotency_key == "k1"


@pytest.mark.parametrize(
    ("run", "code", "last"),
    [
        (a_run(), 0, "run 12 SUCCEEDED, exit code 0, 1.5s"),
        (a_run("FAILED", exit_code=3, error_summary="exit code 3"), 1, "run 12 FAILED, exit code 3, 1.5s: exit code 3"),
        (
            a_run("FAILED", exit_code=None, reason="spawn_failed", error_summary="'nope' does not start"),
            127,
            "run 12 FAILED, 1.5s: 'nope' does not start",
        ),
        (
            a_run("TIMED_OUT", exit_code=None, signal=15, reason="timeout"),
            124,
            "run 12 TIMED_OUT, ended by SIGTERM, 1.5s: timeout",
        ),
        (a_run("CANCELED", exit_code=None, cancel_reason="by Ada"), 3, "run 12 CANCELED, 1.5s: by Ada"),
        (a_run("SKIPPED", exit_code=None, started_at=None, reason="late"), 4, "run 12 SKIPPED: late"),
        (a_run("EXPIRED", exit_code=None, started_at=None, reason="lost"), 5, "run 12 EXPIRED: lost"),
    ],
)
def test_wait_exits_with_the_result(cluster: Any, toban: Toban, run: pb.Run, code: int, last: str) -> None:
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    cluster.reader.runs = [a_run("PENDING"), run]
    cluster.loop.call_soon_threadsafe(cluster.reader.logged.set)
    assert toban("run", "start", "hello", "--wait") == (code, "", f"run 12 of hello started\n{last}\n")


def test_runs_that_exist_are_waited_for(cluster: Any, toban: Toban) -> None:
    cluster.reader.runs = [a_run("PENDING"), a_run("TIMED_OUT", exit_code=None, reason="timeout")]
    cluster.loop.call_soon_threadsafe(cluster.reader.logged.set)
    line_of = "run 12 TIMED_OUT, 1.5s: timeout\n"
    assert toban("run", "wait", "12") == (124, "", line_of)
    assert toban("run", "wait", "12", "13", "--timeout", "1h", "-o", "name") == (124, "12\n12\n", line_of * 2)


def test_a_wait_ends_with_its_time(cluster: Any, toban: Toban) -> None:
    cluster.reader.runs = [a_run("RUNNING")]
    code, out, err = toban("run", "wait", "12", "--timeout", "1s")
    assert (code, out) == (75, "")
    assert "run 12 continues." in err
    assert err.splitlines()[-1] == "error: run 12 has not ended within 1s; `toban run wait 12` waits for it again"
    for text in ("x", "0s", "400d"):
        assert toban("run", "wait", "12", "--timeout", text)[0] == 65


def test_follow_shows_every_line_once_on_its_stream(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    cluster.reader.runs = [a_run("RUNNING"), a_run()]
    cluster.logs.first = [line(1, "one"), line(2, "warned", logs_pb2.LOG_STREAM_STDERR)]
    cluster.logs.late = [line(3, "three"), line(4, "cut", logs_pb2.LOG_STREAM_SYSTEM)]
    code, out, err = toban("run", "start", "hello", "--follow")
    assert (code, out) == (0, "one\nthree\n")
    assert err.splitlines() == [
        "run 12 of hello started",
        "warned",
        "[toban] cut",
        "run 12 SUCCEEDED, exit code 0, 1.5s",
    ]


def test_a_log_that_is_complete_is_not_read_again(cluster: Any, toban: Toban) -> None:
    cluster.reader.runs = [a_run("RUNNING"), a_run()]
    cluster.logs.first = [line(1, "one")]
    cluster.logs.at_end = True
    assert toban("run", "logs", "12", "-f") == (0, "one\n", "run 12 SUCCEEDED, exit code 0, 1.5s\n")
    assert [request.follow for request in cluster.logs.requests] == [True]


def test_a_run_without_output_is_not_waited_for_like_one_with(
    cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toban_cli import direct

    monkeypatch.setattr(direct, "SEAL_SECONDS", 1000.0)
    cluster.logs.stored = False
    cluster.reader.runs = [a_run("RUNNING", last_line=""), a_run(last_line="")]
    cluster.loop.call_soon_threadsafe(cluster.reader.logged.set)
    assert toban("run", "logs", "12", "-f") == (0, "", "run 12 SUCCEEDED, exit code 0, 1.5s\n")


def test_follow_goes_on_when_no_output_can_be_read(
    cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setenv("TOBAN_LOG_ARCHIVERS", f"127.0.0.1:{free_port}")
    cluster.reader.runs = [a_run("RUNNING"), a_run()]
    cluster.loop.call_soon_threadsafe(cluster.reader.logged.set)
    code, out, err = toban("run", "logs", "12", "-f")
    assert (code, out) == (0, "")
    warnings = [text for text in err.splitlines() if text.startswith("warning: ")]
    assert len(warnings) == 1
    assert f"127.0.0.1:{free_port}" in warnings[0]
    assert err.endswith("run 12 SUCCEEDED, exit code 0, 1.5s\n")


def test_run_logs(cluster: Any, toban: Toban) -> None:
    cluster.reader.runs = [a_run()]
    cluster.logs.first = [line(number, f"line {number}") for number in range(1, 6)]
    assert toban("run", "logs", "12") == (0, "".join(f"line {number}\n" for number in range(1, 6)), "")
    assert toban("run", "logs", "12", "--tail", "2") == (0, "line 4\nline 5\n", "")


def test_an_interrupted_wait_says_that_the_run_goes_on(
    cluster: Any, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toban_cli.direct import DirectSource

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DirectSource, "await_end", interrupted)
    cluster.control.answers["StartRuns"] = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    code, _, err = toban("run", "start", "hello", "--wait")
    assert code == 130
    assert "run 12 continues" in err
    assert "toban run cancel 12" in err


def test_cancel(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["CancelRun"] = pb.CancelRunResponse(run=a_run("CANCEL_REQUESTED"))
    assert toban("run", "cancel", "12", "--reason", "no need", "--kill") == (0, "run 12 CANCEL_REQUESTED\n", "")
    request = cluster.control.requests[0]
    assert (request.id, request.reason, request.mode) == (12, "no need", "kill")
    cluster.control.answers["CancelRun"] = TobanError(ErrorCode.RESOURCE_INVALID_STATE, "run 12 has ended (SUCCEEDED)")
    assert toban("run", "cancel", "12") == (74, "", "error: run 12 has ended (SUCCEEDED)\n")


def test_a_run_that_waits_says_why(cluster: Any, toban: Toban) -> None:
    cluster.reader.runs = [pb.Run(id=7, job="x", state="PENDING", waiting="no executor is registered")]
    code, out, _ = toban("run", "get", "7")
    assert code == 0 and re.search(r"^Waits: +no executor is registered$", out, re.MULTILINE)
    assert json.loads(toban("run", "get", "7", "-o", "json")[1])["waiting"] == "no executor is registered"
