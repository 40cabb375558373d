"""`toban run kill`, and what `toban run get` shows of the steps and the output of a job."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2


def test_kill(cluster: Any, toban: Any) -> None:
    cluster.control.answers["CancelRun"] = pb.CancelRunResponse(run=pb.Run(id=12, state="CANCEL_REQUESTED"))
    code, out, _ = toban("run", "kill", "12", "--reason", "it holds a lock")
    assert (code, out) == (0, "run 12 CANCEL_REQUESTED\n")
    request = cluster.control.requests[0]
    assert (request.id, request.mode, request.reason) == (12, "kill", "it holds a lock")


def test_a_run_with_steps_and_output(cluster: Any, toban: Any) -> None:
    eta = datetime.now(UTC) + timedelta(hours=3)  # noqa: TID251
    run = pb.Run(id=7, job="x", state="RUNNING", phase="pack", result_json='{"rows": 3}', has_checkpoint=True)
    run.progress_json = (
        f'{{"percentage":25,"summary":"rows","steps":{{"done":3,"total":12}},"eta":"{eta.isoformat()}"}}'
    )
    run.steps.add(number=1, id="load", name="Load the rows", state="succeeded", exit_code=0, seq_from=1, seq_to=20)
    run.steps.add(number=2, id="pack", state="running", seq_from=21, seq_to=20)
    run.steps[0].started_at.GetCurrentTime()
    run.steps[0].finished_at.GetCurrentTime()
    cluster.reader.runs = [run]
    _, out, _ = toban("run", "get", "7")
    for line in (
        r"^Progress: +\[#####\.+\] 25 % \(3 of 12\) rows$",
        r"^Step: +pack$",
        r"^Expected end: +in (2|3) ?h",
        r"^Result: +\{\"rows\": 3\}$",
        r"^Checkpoint: +kept for the next attempt$",
        r"^1 +Load the rows +succeeded .* 1-20$",
        r"^2 +pack +running +- +- +-$",
    ):
        assert re.search(line, out, re.MULTILINE), (line, out)


def test_steps_of_earlier_attempts(cluster: Any, toban: Any) -> None:
    run = pb.Run(id=7, job="x", state="RUNNING")
    run.steps.add(number=1, id="load", state="skipped")
    first = run.attempts.add(token=3, attempt=1, state="FAILED")
    first.steps.add(number=1, id="load", name="Load the rows", state="succeeded", exit_code=0, seq_from=1, seq_to=20)
    first.steps.add(number=2, id="pack", state="failed", exit_code=4, seq_from=21, seq_to=20)
    run.attempts.add(token=5, attempt=2, state="RUNNING").steps.add(number=2, id="pack", state="running")
    cluster.reader.runs = [run]
    _, out, _ = toban("run", "get", "7")
    section = out.partition("Steps of earlier attempts\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split() for line in section] == [
        ["TRY", "STEP", "NAME", "STATE", "TOOK", "EXIT", "LINES"],
        ["1", "1", "Load", "the", "rows", "succeeded", "-", "0", "1-20"],
        ["1", "2", "pack", "failed", "-", "4", "-"],
    ]
    run.attempts.pop(0)
    assert "earlier attempts" not in toban("run", "get", "7")[1]


class TestLogs:
    """`toban run logs --step`."""

    @pytest.fixture(autouse=True)
    def a_run(self, cluster: Any) -> None:
        run = pb.Run(id=7, job="x", state="SUCCEEDED", token=5)
        for number, name in enumerate(("load", "pack", "send"), start=1):
            run.steps.add(number=number, id=name, name=name.capitalize())
        first, second = run.attempts.add(token=3, attempt=1), run.attempts.add(token=5, attempt=2)
        load = first.steps.add(number=1, id="load", name="Load", seq_from=1, seq_to=20)
        pack = first.steps.add(number=2, id="pack", name="Pack", seq_from=21, seq_to=20)
        again = second.steps.add(number=2, id="pack", name="Pack", seq_from=1)
        for step in (load, pack):
            step.finished_at.GetCurrentTime()
        again.started_at.GetCurrentTime()
        cluster.reader.runs = [run]

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            (["load"], (3, 1, 20)),
            (["Load"], (3, 1, 20)),
            (["1"], (3, 1, 20)),
            # It has no end: everything after it is its own.
            (["pack"], (5, 1, 0)),
        ],
    )
    def test_its_lines_alone_are_read(self, cluster: Any, toban: Any, given: list[str], wanted: Any) -> None:
        cluster.logs.first = [logs_pb2.LogLine(seq=1, text=b"one", stream=logs_pb2.LOG_STREAM_STDOUT)]
        assert toban("run", "logs", "7", "--step", *given)[0] == 0
        [request] = cluster.logs.requests
        assert (list(request.tokens), request.from_seq, request.to_seq) == ([wanted[0]], *wanted[1:])

    def test_one_that_has_written_nothing(self, cluster: Any, toban: Any) -> None:
        code, out, err = toban("run", "logs", "7", "--step", "pack", "--attempt", "1")
        assert (code, out, err) == (0, "", "step 2 of run 7 has written nothing in attempt 1\n")
        assert cluster.logs.requests == []

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (["sned"], "--step: run 7 has no step 'sned'; it has load, pack, send"),
            (["send"], "--step: no attempt of run 7 has begun 'send'"),
            (["load", "--attempt", "2"], "--step: attempt 2 of run 7 has not begun 'load'"),
            (["load", "--follow"], "reads what is stored and --follow continues"),
        ],
    )
    def test_what_cannot_be_read_is_refused(self, toban: Any, given: list[str], text: str) -> None:
        code, _, err = toban("run", "logs", "7", "--step", *given)
        assert code != 0
        assert text in " ".join(err.split()).replace("│ ", "")

    def test_a_job_of_one_step_has_none_to_name(self, cluster: Any, toban: Any) -> None:
        cluster.reader.runs = [pb.Run(id=7, job="x", state="SUCCEEDED", token=5)]
        code, _, err = toban("run", "logs", "7", "--step", "load")
        assert code != 0
        assert "the job of run 7 has one step: leave --step out" in err


def test_the_time_that_a_run_was_in_each_state(cluster: Any, toban: Any) -> None:
    run = pb.Run(id=7, job="x", state="FAILED")
    for second, kind, before, after in (
        (100, "created", "", "PENDING"),
        (160, "assigned", "PENDING", "ASSIGNED"),
        (170, "failed", "ASSIGNED", "FAILED"),
    ):
        run.events.add(type=kind, from_state=before, to_state=after).at.FromSeconds(second)
    cluster.reader.runs = [run]
    _, out, _ = toban("run", "get", "7")
    assert re.search(r" created +PENDING +1m 00s\b", out)
    assert re.search(r" assigned +PENDING → ASSIGNED +10\.0s\b", out)
    assert re.search(r"^AT +EVENT +STATE +LASTED", out, re.MULTILINE)
