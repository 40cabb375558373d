"""Routes of external workers: tokens as text, the long poll, and refusals."""

from __future__ import annotations

from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb

TOKEN = (1 << 62) + 1
KEY = {"run_id": 7, "token": str(TOKEN)}
PB_KEY = common_pb2.AttemptKey(run_id=7, token=TOKEN)


def test_a_step_from_its_claim_to_its_end(api: Any) -> None:
    step = pb.ClaimedStep(
        key=PB_KEY, step_id="transcode", payload_json='{"in": "a.mov"}', lock_ttl_ms=30_000, attempt=1
    )
    api.further.answers["Claim"] = pb.ClaimResponse(steps=[step])
    found = api.post(
        "/external-work/claims", {"worker": "gpu:1", "worker_type": "transcode", "limit": 5, "wait_seconds": 2}
    )
    [claimed] = found.json["steps"]
    assert (claimed["key"], claimed["payload"], claimed["previous_result"]) == (KEY, {"in": "a.mov"}, None)
    request = api.further.last
    assert (request.worker, request.worker_type, request.limit, request.wait_seconds) == ("gpu:1", "transcode", 5, 2)

    api.further.answers["Heartbeat"] = pb.ExternalHeartbeatResponse(lost=[PB_KEY])
    beat = api.post("/external-work/heartbeats", {"worker": "gpu:1", "keys": [KEY]})
    assert beat.json == {"lost": [KEY], "cancel": []} and list(api.further.last.keys) == [PB_KEY]

    api.further.answers["UpdateProgress"] = pb.UpdateProgressResponse(cancel_requested=True)
    noted = api.post("/external-work/progress", {"worker": "gpu:1", "key": KEY, "percentage": 40, "summary": "half"})
    assert noted.json == {"cancel_requested": True}
    assert (api.further.last.key, api.further.last.percentage, api.further.last.summary) == (PB_KEY, 40, "half")

    api.further.answers["AppendLog"] = pb.AppendLogResponse(last_seq=4, cancel_requested=True)
    lines = [{"text": "a"}, {"text": "b", "stream": "stderr", "at_unix_ms": 1_800_000_000_000}]
    logged = api.post("/external-work/log", {"worker": "gpu:1", "key": KEY, "first_seq": 3, "lines": lines})
    assert logged.json == {"last_seq": 4, "cancel_requested": True}
    assert (api.further.last.key, api.further.last.first_seq) == (PB_KEY, 3)
    assert [(line.text, line.stream, line.at_unix_ms) for line in api.further.last.lines] == [
        ("a", "stdout", 0),
        ("b", "stderr", 1_800_000_000_000),
    ]
    lines = [{"text": "a", "stream": "out"}]
    refused = api.post("/external-work/log", {"worker": "gpu:1", "key": KEY, "first_seq": 1, "lines": lines})
    assert (refused.status_code, "lines.0.stream" in refused.text) == (400, True)

    answer = pb.StepAnswer(key=PB_KEY, result="accepted")
    api.further.answers["Complete"] = pb.CompleteResponse(answers=[answer])
    done = api.post(
        "/external-work/complete", {"worker": "gpu:1", "steps": [{"key": KEY, "result": {"out": [1]}}, {"key": KEY}]}
    )
    assert done.json["answers"][0]["result"] == "accepted"
    assert [one.result_json for one in api.further.last.steps] == ['{"out": [1]}', ""]

    api.further.answers["Fail"] = pb.FailResponse(result="accepted")
    failed = api.post("/external-work/fail", {"worker": "gpu:1", "key": KEY, "error": "no codec", "retryable": False})
    assert failed.json == {"result": "accepted"}
    assert (api.further.last.key, api.further.last.error, api.further.last.retryable) == (PB_KEY, "no codec", False)
    assert (
        api.post("/external-work/fail", {"worker": "gpu:1", "key": KEY}).status_code == 200
        and api.further.last.retryable
    )

    api.further.answers["AcknowledgeCancel"] = pb.AcknowledgeCancelResponse(result="already_accepted")
    stopped = api.post("/external-work/acknowledge-cancel", {"worker": "gpu:1", "key": KEY})
    assert stopped.json == {"result": "already_accepted"} and api.further.last.key == PB_KEY


def test_a_claim_occupies_a_slot_until_its_answer(api: Any) -> None:
    slots = api.web.worker.context.stream_slots
    body = {"worker": "gpu:1", "worker_type": "transcode", "wait_seconds": 1}
    response = api.post("/external-work/claims", body)
    assert response.json == {"steps": []}
    response.close()
    assert slots.usage()[0] == 0
    held = [slots.acquire(f"person {n}", stream=False) for n in range(slots.size)]
    assert api.post("/external-work/claims", body).status_code == 429
    for release in held:
        release()


def test_what_is_refused(api: Any) -> None:
    for body, where in (
        ({"worker": "a", "worker_type": "x", "wait_seconds": 26}, "body.wait_seconds"),
        ({"worker": "", "worker_type": "x"}, "body.worker"),
        ({"worker": "a", "worker_type": "x", "limit": 101}, "body.limit"),
    ):
        assert api.post("/external-work/claims", body).json["errors"][0]["where"] == where
    for token in ("x", "-1", "9" * 19, 5):
        assert (
            api.post("/external-work/heartbeats", {"worker": "a", "keys": [{"run_id": 7, "token": token}]}).status_code
            == 400
        )
    assert api.further.calls == []
    api.refuse("Fail", TobanError(ErrorCode.CLAIM_LOST, "the claim is another worker's"))
    response = api.post("/external-work/fail", {"worker": "a", "key": KEY})
    assert (response.status_code, response.json["code"]) == (409, "CLAIM_LOST")
