"""`diff` and `delete` of what files name; files with and without --file."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.read import Document, read_manifests
from toban_proto.v1 import coordinator_pb2 as pb
from toban_schedule import problems

Toban = Callable[..., tuple[int, str, str]]
HEAD = "apiVersion: toban/v1\n"
JOB = HEAD + "kind: Job\nmetadata: {name: x}\nspec: {timeout_seconds: 60, steps: [{argv: [/bin/true]}]}\n"
SCHEDULE = HEAD + "kind: Schedule\nmetadata: {name: s}\nspec: {job: x, interval_seconds: 5}\n"
TRIGGER = HEAD + "kind: EventTrigger\nmetadata: {name: t}\nspec: {event_type: a.b, job: x}\n"


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """A job, a schedule and a trigger, each in a file."""
    for name, text in (("a", JOB), ("b", SCHEDULE), ("c", TRIGGER)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return [str(tmp_path / f"{name}.yaml") for name in "abc"]


def stored(kind: str, **spec: Any) -> str:
    """A definition as servers store it."""
    name = {"Job": "x", "Schedule": "s", "EventTrigger": "t"}[kind]
    body = {"apiVersion": "toban/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return json.dumps(read_manifests([Document("a", body)], check_rule=problems)[0].spec.to_json())


def answers(cluster: Any, *actions: str) -> None:
    kinds = (("Job", "x"), ("Schedule", "s"), ("EventTrigger", "t"))
    applied = [pb.Applied(kind=kind, name=name, action=one) for (kind, name), one in zip(kinds, actions, strict=False)]
    cluster.control.answers["Apply"] = pb.ApplyResponse(applied=applied)


@pytest.mark.parametrize("form", [("-f", "{}"), ("{}",)])
def test_nothing_differs(cluster: Any, toban: Toban, files: list[str], form: tuple[str, ...]) -> None:
    answers(cluster, "unchanged", "unchanged", "unchanged")
    assert toban("diff", *(word.format(file) for file in files for word in form)) == (0, "", "")
    [request] = cluster.control.requests
    assert request.dry_run and len(request.manifests) == 3


def test_what_differs_is_a_unified_diff_and_exit_code_1(cluster: Any, toban: Toban, files: list[str]) -> None:
    answers(cluster, "updated", "created", "updated")
    job = stored("Job", timeout_seconds=30, steps=[{"argv": ["/bin/true"]}])
    cluster.reader.answers["GetJob"] = pb.Job(name="x", spec_json=job)
    trigger = pb.Trigger(name="t", spec_json=stored("EventTrigger", event_type="a.c", job="x"))
    cluster.reader.answers["ListTriggers"] = pb.ListTriggersResponse(triggers=[trigger])
    code, out, err = toban("diff", *files)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert [line for line in lines if line.startswith(("---", "+++"))] == [
        "--- job x (stored)",
        f"+++ job x ({files[0]})",
        "--- /dev/null",
        f"+++ schedule s ({files[1]})",
        "--- trigger t (stored)",
        f"+++ trigger t ({files[2]})",
    ]
    # With the defaults on both sides nothing else differs.
    changes = [
        line for line in lines[: lines.index("--- /dev/null")] if line[0] in "+-" and line[:3] not in ("---", "+++")
    ]
    assert changes == ["-timeout_seconds: 30", "+timeout_seconds: 60"]
    assert "+interval_seconds: 5" in out.replace("  ", "") and "-event_type: a.c" in out
    assert toban("diff", *files, "-o", "name") == (1, "job/x\nschedule/s\ntrigger/t\n", "")
    code, out, _ = toban("diff", *files, "-o", "json")
    found = json.loads(out)
    assert code == 1 and [one["action"] for one in found] == ["updated", "created", "updated"]
    assert (found[0]["before"], found[1]["before"]) == (json.loads(job), None)
    assert found[0]["after"]["timeout_seconds"] == 60


def test_values_that_are_hidden_are_named_as_such(cluster: Any, toban: Toban, files: list[str]) -> None:
    answers(cluster, "updated")
    job = stored("Job", timeout_seconds=60, steps=[{"argv": ["/bin/true"]}])
    cluster.reader.answers["GetJob"] = pb.Job(name="x", spec_json=job)
    assert toban("diff", files[0]) == (1, "job x updated: only values differ that are hidden here\n", "")


def test_an_error_of_a_diff_is_no_difference(cluster: Any, toban: Toban, files: list[str]) -> None:
    cluster.control.answers["Apply"] = TobanError(ErrorCode.PERMISSION_DENIED, "not for you")
    assert toban("diff", files[0])[0] == 77
    assert toban("diff", "/nowhere.yaml")[0] == 66
    assert toban("diff")[0] == 64


def test_files_come_with_and_without_the_option(
    toban: Toban, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toban("validate", files[1], "-f", files[0]) == (0, "2 documents are valid\n", "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TRIGGER.encode())))
    assert toban("validate", "-") == (0, "1 document is valid\n", "")
    code, out, err = toban("apply")
    assert (code, out) == (64, "") and "FILE: nothing is named; give a YAML file, a folder of them, or -" in err


def missing(kind: str) -> TobanError:
    return TobanError(ErrorCode[f"{kind}_NOT_FOUND"], f"there is no {kind.lower()} 'x'")


def test_what_uses_a_job_is_deleted_before_it(cluster: Any, toban: Toban, files: list[str]) -> None:
    cluster.control.answers |= {
        "DeleteJob": pb.DeleteJobResponse(schedules=["other"], canceled_runs=2),
        "DeleteSchedule": pb.DeleteScheduleResponse(),
        "DeleteTrigger": pb.DeleteTriggerResponse(),
    }
    more = ("--with-schedules", "--cancel-runs", "--reason", "moved", "--yes")
    code, out, err = toban("delete", "-f", files[0], *files[1:], *more)
    assert (code, err) == (0, "note: no reason is kept for trigger t\n")
    lines = ["trigger t deleted", "schedule s deleted", "job x deleted", "schedule other deleted", "runs cancelled: 2"]
    assert out.splitlines() == lines
    *_, schedule, job = cluster.control.requests
    assert (schedule.reason, job.reason, job.with_schedules, job.with_triggers, job.cancel_runs) == (
        *("moved", "moved"),
        *(True, False, True),
    )
    assert toban("delete", *files, "--yes", "-o", "name") == (0, "trigger/t\nschedule/s\njob/x\n", "")


def test_what_is_missing_is_named_and_the_rest_deleted(cluster: Any, toban: Toban, files: list[str]) -> None:
    cluster.control.answers |= {
        "DeleteJob": pb.DeleteJobResponse(),
        "DeleteSchedule": missing("SCHEDULE"),
        "DeleteTrigger": missing("TRIGGER"),
    }
    code, out, err = toban("delete", *files, "--yes")
    assert (code, out) == (66, "job x deleted\n")
    assert err == (
        "trigger t is not there\nschedule s is not there\n"
        "error: 2 of 3 are not there; --ignore-missing takes that as deleted\n"
    )
    code, out, err = toban("delete", *files, "--yes", "--ignore-missing", "-o", "json")
    assert (code, err) == (0, "trigger t is not there\nschedule s is not there\n")
    assert [(one["kind"], one["action"]) for one in json.loads(out)] == [
        ("EventTrigger", "missing"),
        ("Schedule", "missing"),
        ("Job", "deleted"),
    ]


def test_a_deletion_that_is_refused_ends_the_command(cluster: Any, toban: Toban, files: list[str]) -> None:
    cluster.control.answers |= {
        "DeleteSchedule": TobanError(ErrorCode.PERMISSION_DENIED, "not for you"),
        "DeleteTrigger": pb.DeleteTriggerResponse(),
    }
    code, out, err = toban("delete", *files, "--yes", "--ignore-missing")
    assert (code, out) == (77, "trigger t deleted\n") and "not for you" in err
    code, out, err = toban("delete", *files, "--yes", "-o", "json")
    assert code == 77 and "not for you" in err
    assert json.loads(out) == [{"kind": "EventTrigger", "name": "t", "action": "deleted"}]
    assert not [one for one in cluster.control.requests if isinstance(one, pb.DeleteJobRequest)]


def test_a_deletion_asks_first(cluster: Any, toban: Toban, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = toban("delete", *files)
    assert (code, out) == (65, "") and "stdin is not a terminal; add --yes" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    code, _, err = toban("delete", *files)
    assert code == 130 and "Delete trigger t, schedule s, job x?" in err
    assert cluster.control.requests == []
