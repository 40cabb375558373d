"""`toban run cancel|rerun|note` and `toban job delete`: one run, or every run that the options name."""

import json
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb


def test_rerun_of_one_run(cluster: Any, toban: Any) -> None:
    cluster.control.answers["RerunRun"] = pb.RerunRunResponse(run_id=13, created=True)
    assert toban("run", "rerun", "12")[:2] == (0, "run 13 repeats run 12\n")
    given = ("-p", "size:=5", "--latest-definition", "--priority", "4", "--to-scope", "account:17", "--reason", "disk")
    assert toban("run", "rerun", "12", *given, "--idempotency-key", "k")[0] == 0
    toban("run", "rerun", "12", "--payload", '{"a": 1}', "-p", "b=c")
    toban("run", "rerun", "12", "--from-failed-step")
    plain, changed, replaced, later = cluster.control.requests
    assert [one.from_failed_step for one in (plain, later)] == [False, True]
    assert (plain.id, plain.payload_json, plain.replace_payload, plain.latest_definition) == (12, "{}", False, False)
    assert plain.idempotency_key.startswith("cli-")
    assert (json.loads(changed.payload_json), changed.latest_definition, changed.priority) == ({"size": 5}, True, 4)
    assert (changed.scope, changed.scope_id, changed.reason) == ("account", "17", "disk")
    assert changed.idempotency_key == "k"
    assert replaced.replace_payload and json.loads(replaced.payload_json) == {"a": 1, "b": "c"}


def test_rerun_that_is_waited_for(cluster: Any, toban: Any) -> None:
    cluster.control.answers["RerunRun"] = pb.RerunRunResponse(run_id=13, created=True)
    cluster.reader.runs = [pb.Run(id=13, job="hello", state="FAILED", exit_code=3)]
    cluster.reader.logged.set()
    assert toban("run", "rerun", "12", "--wait")[0] == 1


def parts(*answers: pb.ChangeRunsResponse) -> Any:
    given = iter(answers)
    return lambda request: next(given)


def test_cancel_by_filter_part_by_part(cluster: Any, toban: Any) -> None:
    first = pb.ChangeRunsResponse(matched=3, changed=2, next_cursor="40")
    first.skipped.add(code="CANCEL_UNSUPPORTED", message="job 'x' says so", runs=1, run_ids=[41])
    last = pb.ChangeRunsResponse(matched=2, changed=1)
    last.skipped.add(code="CANCEL_UNSUPPORTED", message="job 'x' says so", runs=1, run_ids=[7])
    cluster.control.answers["CancelRuns"] = parts(first, last)
    code, out, err = toban(
        "run", "cancel", "--job", "x", "--state", "pending", "--label", "team=ops", "--scope", "account:17",
        "--reason", "bad release", "--yes",
    )  # fmt: skip
    assert code == 0
    assert out.splitlines()[0] == "3 runs cancelled"
    assert out.splitlines()[1].startswith("2 runs skipped, CANCEL_UNSUPPORTED: job 'x' says so (runs 41")
    assert "2 runs so far" in err
    one, two = cluster.control.requests
    assert (one.filter.job, list(one.filter.states), one.reason, one.dry_run) == (
        "x",
        ["PENDING"],
        "bad release",
        False,
    )
    assert dict(one.filter.labels) == {"team": "ops"} and one.filter.scope_id == "17"
    assert (one.filter.page.cursor, two.filter.page.cursor) == ("", "40")


def test_a_dry_run_counts_only(cluster: Any, toban: Any) -> None:
    cluster.control.answers["RerunRuns"] = pb.ChangeRunsResponse(matched=7)
    assert toban("run", "rerun", "--job", "x", "--dry-run")[:2] == (0, "7 runs match\n")
    [request] = cluster.control.requests
    assert request.dry_run and request.operation


def test_without_a_terminal_yes_is_needed(cluster: Any, toban: Any) -> None:
    code, _, err = toban("run", "cancel", "--job", "x")
    assert code == 64 and "--yes" in err and not cluster.control.requests


def test_a_terminal_is_asked(cluster: Any, toban: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> None:
        asked.append(text)

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", confirm)
    cluster.control.answers["RerunRuns"] = parts(
        pb.ChangeRunsResponse(matched=2), pb.ChangeRunsResponse(matched=2, changed=2, run_ids=[8, 9])
    )
    code, out, _ = toban("run", "rerun", "--job", "x")
    assert (code, out, asked) == (0, "2 runs repeated\n", ["Repeat 2 runs?"])
    dry, done = cluster.control.requests
    assert dry.dry_run and not done.dry_run and dry.operation == done.operation


def test_nothing_that_could_be_changed_is_a_failure(cluster: Any, toban: Any) -> None:
    answer = pb.ChangeRunsResponse(matched=1)
    answer.skipped.add(code="PERMISSION_DENIED", message="ada may not", runs=1, run_ids=[7])
    cluster.control.answers["CancelRuns"] = answer
    assert toban("run", "cancel", "--job", "x", "--yes")[0] == 1
    cluster.control.answers["CancelRuns"] = pb.ChangeRunsResponse()
    cluster.reader.answers["GetJob"] = pb.Job(name="x")
    assert toban("run", "cancel", "--job", "x", "--yes")[:2] == (0, "0 runs cancelled\n")


@pytest.mark.parametrize(
    "given",
    [
        ("cancel",),
        ("cancel", "--ahead"),
        ("cancel", "12", "--job", "x"),
        ("cancel", "12", "--dry-run"),
        ("rerun",),
        ("rerun", "12", "--state", "FAILED"),
        ("rerun", "--job", "x", "--param", "a=b"),
        ("rerun", "--job", "x", "--wait"),
        ("rerun", "--job", "x", "--from-failed-step"),
        ("rerun", "--job", "x", "--state", "GONE"),
    ],
)
def test_a_number_or_options_that_name_runs(given: tuple[str, ...], cluster: Any, toban: Any) -> None:
    assert toban("run", *given)[0] == 64
    assert not cluster.control.requests


def test_note(cluster: Any, toban: Any) -> None:
    cluster.control.answers["NoteRun"] = pb.NoteRunResponse()
    assert toban("run", "note", "12", "the vendor was down")[:2] == (0, "note kept with run 12\n")
    assert (cluster.control.requests[0].id, cluster.control.requests[0].text) == (12, "the vendor was down")


def test_a_run_names_its_reruns(cluster: Any, toban: Any) -> None:
    cluster.reader.runs = [pb.Run(id=12, job="x", state="FAILED", reruns=[13, 15])]
    assert "run 13, run 15" in toban("run", "get", "12")[1]


def test_job_delete(cluster: Any, toban: Any) -> None:
    cluster.control.answers["DeleteJob"] = pb.DeleteJobResponse(schedules=["nightly"], canceled_runs=2)
    code, out, _ = toban("job", "delete", "import", "--with-schedules", "--cancel-runs", "--reason", "obsolete")
    assert (code, out) == (0, "job import deleted\nschedule nightly deleted\nruns cancelled: 2\n")
    [request] = cluster.control.requests
    assert (request.name, request.reason) == ("import", "obsolete")
    assert (request.with_schedules, request.with_triggers, request.cancel_runs) == (True, False, True)


@pytest.mark.parametrize("command", ["cancel", "rerun"])
def test_runs_of_an_unknown_job_cannot_be_changed(cluster: Any, toban: Any, command: str) -> None:
    for method in ("CancelRuns", "RerunRuns"):
        cluster.control.answers[method] = pb.ChangeRunsResponse()
    cluster.reader.answers["GetJob"] = TobanError(
        ErrorCode.JOB_NOT_FOUND, "there is no job 'helo'; did you mean 'hello'?"
    )
    for way in ("--yes", "--dry-run"):
        code, out, err = toban("run", command, "--job", "helo", way)
        assert (code, out) == (66, "") and "did you mean 'hello'?" in err


def test_a_job_is_disabled_and_enabled_with_a_reason(cluster: Any, toban: Any) -> None:
    cluster.control.answers["DisableJob"] = pb.Job(name="import")
    code, out, _ = toban("job", "disable", "import", "--reason", "a move")
    assert (code, out) == (0, "job import disabled; enable it with `toban job enable import`\n")
    assert cluster.control.requests[-1] == pb.DisableJobRequest(name="import", reason="a move")
    code, out, _ = toban("job", "disable", "import", "--until", "+2h")
    assert code == 0 and " (in 2h); enable it earlier with `toban job enable import`" in out
    assert cluster.control.requests[-1].HasField("until")
    cluster.control.answers["EnableJob"] = pb.Job(name="import", enabled=True)
    assert toban("job", "enable", "import", "--reason", "it is back")[:2] == (0, "job import enabled\n")
    assert cluster.control.requests[-1] == pb.EnableJobRequest(name="import", reason="it is back")
    cluster.control.answers["EnableJob"] = pb.Job(name="import")
    assert "stays disabled: its manifest has enabled: false" in toban("job", "enable", "import")[1]
    cluster.control.answers["DisableJob"] = TobanError(
        ErrorCode.RESOURCE_INVALID_STATE, "job 'import' is disabled already by user ada: a move; enable it first"
    )
    code, _, error = toban("job", "disable", "import")
    assert code != 0 and "disabled already by user ada" in error


def test_a_disabled_job_says_by_whom_and_why(cluster: Any, toban: Any) -> None:
    job = pb.Job(name="import", spec_json="{}", disabled_by="user ada", disabled_reason="a\x1b[31m move")
    job.disabled_at.FromJsonString("2026-11-20T10:00:00Z")
    job.disabled_until.FromJsonString("2096-12-01T07:00:00Z")
    cluster.reader.answers |= {"GetJob": job, "ListJobs": pb.ListJobsResponse(jobs=[job])}
    code, out, _ = toban("job", "get", "import")
    assert (
        code == 0
        and "no: disabled until 2096-12-01 " in out
        and "by user ada" in out
        and ": a" in out
        and "\x1b" not in out
    )
    code, out, _ = toban("job", "list", "-o", "wide")
    assert code == 0 and "WHY" in out and "move" in out and "\x1b" not in out
    cluster.reader.answers["GetJob"] = pb.Job(name="import", spec_json="{}")
    assert "no: its manifest has enabled: false" in toban("job", "get", "import")[1]


def versions(request: Any) -> pb.ListJobVersionsResponse:
    """Three versions of a job."""
    below = int(request.page.cursor or 9)
    found = [
        pb.JobVersion(version=n, spec_json=json.dumps({"name": "import", "priority": n // 2}), created_by="user ada")
        for n in (5, 3, 2)
        if n < below
    ]
    return pb.ListJobVersionsResponse(versions=found[: request.page.limit])


def test_versions_of_a_job_and_their_difference(cluster: Any, toban: Any) -> None:
    cluster.reader.answers["ListJobVersions"] = versions
    code, out, _ = toban("job", "versions", "import")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["VERSION", "5", "3", "2"]
    code, out, _ = toban("job", "versions", "import", "--diff")
    assert code == 0 and "--- import version 3" in out and "\n-priority: 1\n+priority: 2\n" in out
    code, out, _ = toban("job", "versions", "import", "--diff", "--version", "3", "--before", "2")
    assert (code, out) == (0, "nothing differs\n")
    code, out, _ = toban("job", "versions", "import", "--diff", "-o", "json")
    assert code == 0 and [one["version"] for one in json.loads(out)] == [3, 5]
    assert "version 2 is the first one" in toban("job", "versions", "import", "--diff", "--version", "2")[1]
    code, _, error = toban("job", "versions", "import", "--diff", "--version", "4")
    assert code == 66 and "has no version 4" in error
    assert toban("job", "versions", "import", "--before", "2")[0] != 0


def test_days_of_a_job(cluster: Any, toban: Any) -> None:
    cluster.reader.answers["GetJobDays"] = pb.JobDays(
        days=[pb.JobDay(day="2026-11-22", succeeded=100, failed=2), pb.JobDay(day="2026-11-23", other=1)]
    )
    code, out, _ = toban("job", "days", "import", "--days", "7")
    assert code == 0 and [line.split() for line in out.splitlines()][1:] == [
        ["2026-11-22", "100+", "2", "0"],
        ["2026-11-23", "0", "0", "1"],
    ]
    assert cluster.reader.requests[-1] == pb.GetJobDaysRequest(name="import", days=7)
    cluster.reader.answers["GetJobDays"] = pb.JobDays()
    assert "No run of import has ended" in toban("job", "days", "import")[1]
