"""Server-sent events of the API: changes of a run to its end, and output with its cursor."""

from __future__ import annotations

import json
import re
from typing import Any

from toban_admin_web.views.api import streams
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb


def test_each_state_of_a_run_once_until_its_end(api: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(streams, "PAUSE_SECONDS", 0.0)
    rounds = [
        [pb.Run(id=7, version=1, state="RUNNING"), pb.Run(id=7, version=2, state="RUNNING")],
        [pb.Run(id=7, version=2, state="RUNNING"), pb.Run(id=7, version=3, state="SUCCEEDED")],
    ]

    class Rounds:
        def __iter__(self) -> Any:
            return iter(rounds.pop(0))

    api.further.answers["WatchRun"] = Rounds()
    response = api.get("/runs/7/stream")
    assert response.content_type == "text/event-stream" and response.headers["X-Accel-Buffering"] == "no"
    text = response.get_data(as_text=True)
    assert re.findall(r"^id: (\d+)$", text, re.M) == ["1", "2", "3"] and ": idle\n" in text
    last = json.loads(re.findall(r"^event: run\ndata: (.+)$", text, re.M)[-1])
    assert (last["state"], last["id"]) == ("SUCCEEDED", 7) and text.endswith("event: end\ndata: {}\n\n")
    assert rounds == []


def test_an_error_before_the_first_state_is_the_status(api: Any) -> None:
    api.further.answers["WatchRun"] = [TobanError(ErrorCode.RUN_NOT_FOUND, "there is no run 7")]
    assert api.get("/runs/7/stream").status_code == 404
    assert api.web.worker.context.stream_slots.usage()[0] == 0


def test_an_error_after_it_ends_the_stream(api: Any) -> None:
    lost = TobanError(ErrorCode.UNAUTHENTICATED, "the token is revoked")
    api.further.answers["WatchRun"] = [pb.Run(id=7, version=1, state="RUNNING"), lost]
    text = api.get("/runs/7/stream").get_data(as_text=True)
    assert text.count("event: run") == 1 and "event: end" not in text


def test_output_arrives_until_it_is_complete(api: Any) -> None:
    token = api.web.token
    ended = api.web.run(7, "SUCCEEDED", finished_at=api.web.stamp(600))
    api.further.answers["GetRun"] = ended
    api.web.cluster.write(token=token, sealed=True)
    text = api.get("/runs/7/logs/stream").get_data(as_text=True)
    assert f"id: {token}:2\nevent: lines\n" in text and "event: end\n" in text
    resumed = api.get("/runs/7/logs/stream", Last_Event_ID=f"{token}:1").get_data(as_text=True)
    assert "line 2" in resumed and "line 1" not in resumed
    resumed = api.get(f"/runs/7/logs/stream?after={token}:1").get_data(as_text=True)
    assert "line 2" in resumed and "line 1" not in resumed


def test_one_person_occupies_four_streams_and_all_leave_room_for_downloads(api: Any) -> None:
    web, slots = api.web, api.web.worker.context.stream_slots
    api.further.answers["GetRun"] = web.run(7, "RUNNING")
    mine = [api.get("/runs/7/logs/stream", role="viewer") for _ in range(4)]
    assert [one.status_code for one in mine] == [200] * 4
    refused = api.get("/runs/7/logs/stream", role="viewer")
    assert refused.status_code == 429 and "u-viewer has 4 open streams" in refused.json["detail"]
    other = api.get("/runs/7/logs/stream", role="admin")
    assert other.status_code == 200, "another person has places of their own"
    held = [slots.acquire(f"person {number}", stream=True) for number in range(slots.size)]
    assert slots.usage()[0] == slots.streams < slots.size
    full = api.get("/runs/7/logs/stream", role="operator")
    assert full.status_code == 429 and "are for downloads and searches" in full.json["detail"]
    with api.get("/runs/7/logs", role="operator") as download:
        assert download.status_code == 200
    for response in (*mine, other):
        response.close()
    for release in filter(None, held):
        release()
    assert slots.usage()[0] == 0


def test_one_person_occupies_half_of_the_places_by_downloads(api: Any) -> None:
    slots = api.web.worker.context.stream_slots
    api.further.answers["GetRun"] = api.web.run(7, "RUNNING")
    most = slots.others_of_a_person
    assert most == slots.size // 2
    mine = [api.get("/runs/7/logs", role="viewer") for _ in range(most)]
    assert [one.status_code for one in mine] == [200] * most
    refused = api.get("/runs/7/logs", role="viewer")
    assert refused.status_code == 429 and f"u-viewer has {most} open downloads" in refused.json["detail"]
    for other in (api.get("/runs/7/logs/stream", role="viewer"), api.get("/runs/7/logs", role="admin")):
        assert other.status_code == 200, "streams are counted apart, and so are others"
        other.close()
    for response in mine:
        response.close()
    assert slots.usage()[0] == 0
