"""`toban run lost`, and what `toban run get` shows of a question about continuation."""

import re
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from toban_proto.v1 import coordinator_pb2 as pb


def test_lost(cluster: Any, toban: Any) -> None:
    cluster.control.answers["DeclareRunLost"] = pb.DeclareRunLostResponse(run=pb.Run(id=12, state="ORPHANED"))
    code, out, _ = toban("run", "lost", "12", "--reason", "host-a has burnt down")
    assert (code, out) == (0, "run 12 waits no more for its executor\n")
    request = cluster.control.requests[0]
    assert (request.id, request.reason) == (12, "host-a has burnt down")


def test_a_run_that_was_just_confirmed_says_so(cluster: Any, toban: Any) -> None:
    at = Timestamp()
    at.GetCurrentTime()
    run = pb.Run(id=7, job="x", state="RUNNING", continuation_state="CONFIRMING", continuation_check_started_at=at)
    cluster.reader.runs = [run]
    _, out, _ = toban("run", "get", "7")
    assert re.search(r"^Continuation: +confirmed at ", out, re.MULTILINE)
    run.continuation_state = "NONE"
    assert "Continuation" not in toban("run", "get", "7")[1]
