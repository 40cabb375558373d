"""`toban run kill`, and what `toban run get` shows of the steps and the output of a job."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from toban_proto.v1 import coordinator_pb2 as pb


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
    run.steps.add(id="load", name="Load the rows", state="succeeded", exit_code=0, seq_from=1, seq_to=20)
    run.steps.add(id="pack", state="running", seq_from=21, seq_to=20)
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
