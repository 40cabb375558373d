"""`toban event` and `toban trigger` against a cluster over mTLS."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.clock import SystemClock

Toban = Callable[..., tuple[int, str, str]]


def ago(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(SystemClock().wall() - timedelta(seconds=seconds))
    return stamp


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_emit(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["EmitEvent"] = pb.EmitEventResponse(event_id=12)
    said = toban("event", "emit", "order.paid", "--payload", '{"a": 1}', "-p", "name=Ada", "-p", "n:=5")
    assert said == (0, "event 12 accepted\n", "")
    [request] = cluster.control.requests
    assert (request.event_type, json.loads(request.payload_json)) == ("order.paid", {"a": 1, "name": "Ada", "n": 5})
    # The call may be sent twice; so it carries a key even when the caller gave none.
    assert request.dedupe_key.startswith("cli-")
    assert toban("event", "emit", "x", "-o", "name") == (0, "12\n", "")


def test_emit_says_that_it_is_a_duplicate(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["EmitEvent"] = pb.EmitEventResponse(event_id=13, duplicate=True)
    code, out, _ = toban("event", "emit", "order.paid", "--dedupe-key", "k")
    assert code == 0 and "event 13 accepted, but it is a duplicate and starts nothing" in out and "key k" in out
    assert cluster.control.requests[0].dedupe_key == "k"
    _, out, _ = toban("event", "emit", "order.paid", "--dedupe-key", "k", "-o", "json")
    assert json.loads(out) == {"event_id": 13, "duplicate": True}


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--payload", "[1]"], 72, "give one JSON object"),
        (["-p", "x"], 65, "name=value"),
        (["-p", "x:=" + "[" * 5000], 72, "not JSON"),
        (["-p", "x:=" + "[" * 500 + "]" * 500], 72, "100 levels"),
        (["--dedup-key", "x"], 64, "--dedupe-key"),
    ],
)
def test_emit_of_what_is_wrong(toban: Toban, argv: list[str], code: int, words: str) -> None:
    found, _, err = toban("event", "emit", "order.paid", *argv)
    assert found == code and words in err


def test_the_list_of_events(cluster: Any, toban: Toban) -> None:
    events = [
        pb.Event(id=3, event_type="order.paid", created_at=ago(5), message="trigger t: payload.n: missing"),
        pb.Event(id=2, event_type="order.paid", created_at=ago(60), dedupe_key="k", outcome="started", run_ids=[4, 5]),
        pb.Event(
            id=1,
            event_type="x",
            created_at=ago(90),
            outcome="no_trigger",
            payload_json='{"a": 1}',
            created_by="sql:app",
        ),
    ]
    cluster.reader.answers["ListEvents"] = pb.ListEventsResponse(events=events)
    code, out, err = toban("event", "list", "--type", "order.paid", "--unprocessed", "-n", "3")
    assert (code, err) == (0, "")
    assert squeezed(out) == [
        "EVENT TYPE OUTCOME EMITTED RUNS KEY MESSAGE",
        "3 order.paid waiting 5s ago - - trigger t: payload.n: missing",
        "2 order.paid started 60s ago 4,5 k -",
        "1 x no_trigger 90s ago - - -",
    ]
    [request] = cluster.reader.requests
    assert (request.event_type, request.unprocessed, request.page.limit) == ("order.paid", True, 3)
    _, out, _ = toban("event", "list", "-o", "wide")
    assert squeezed(out)[-1].endswith('- sql:app {"a": 1}')
    _, out, _ = toban("event", "list", "-o", "json")
    assert [(one["id"], one["payload"], one["run_ids"]) for one in json.loads(out)] == [
        (3, {}, []),
        (2, {}, [4, 5]),
        (1, {"a": 1}, []),
    ]
    cluster.reader.answers["ListEvents"] = pb.ListEventsResponse()
    assert toban("event", "list")[1] == "No events. Emit one with `toban event emit TYPE`.\n"


def test_triggers(cluster: Any, toban: Toban) -> None:
    spec = {"name": "t", "event_type": "order.paid", "job": "invoice", "filter": {"total": {"gt": 5}}}
    trigger = pb.Trigger(
        name="t",
        job="invoice",
        event_type="order.paid",
        enabled=True,
        spec_json=json.dumps(spec),
        version=2,
        updated_at=ago(60),
        last_error="event 7: no",
    )
    cluster.reader.answers["ListTriggers"] = pb.ListTriggersResponse(triggers=[trigger])
    code, out, _ = toban("trigger", "list", "--type", "order.paid", "-o", "wide")
    assert code == 0 and squeezed(out) == [
        "NAME ON JOB ENABLED UPDATED LAST ERROR VERSION FILTER",
        't order.paid invoice yes 60s ago event 7: no 2 {"total": {"gt": 5}}',
    ]
    code, out, _ = toban("trigger", "get", "t")
    assert code == 0 and "Last error: event 7: no" in out and '"event_type": "order.paid"' in out
    assert [(request.event_type, request.name) for request in cluster.reader.requests] == [
        ("order.paid", ""),
        ("", "t"),
    ]
    assert toban("trigger", "list", "-o", "name")[1] == "t\n"


def test_remove_a_trigger(cluster: Any, toban: Toban) -> None:
    cluster.control.answers["DeleteTrigger"] = pb.DeleteTriggerResponse()
    assert toban("trigger", "delete", "t") == (0, "trigger t deleted\n", "")
    assert toban("trigger", "delete", "t", "-o", "name") == (0, "t\n", "")
    missing = TobanError(ErrorCode.TRIGGER_NOT_FOUND, "there is no trigger 'x'; did you mean 't'?")
    cluster.control.answers["DeleteTrigger"] = missing
    assert toban("trigger", "delete", "x") == (66, "", "error: there is no trigger 'x'; did you mean 't'?\n")


def test_the_manifest_in_the_document_is_valid(toban: Toban, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "events.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "doc.yaml").write_text(block)
    assert toban("validate", "-f", str(tmp_path / "doc.yaml"))[0] == 0


def test_an_event_that_is_nested_deeply_breaks_no_list(cluster: Any, toban: Toban, subtests: pytest.Subtests) -> None:
    for levels, form in product((99, 195, 201, 450, 900, 5000), ("table", "wide", "json", "yaml")):
        with subtests.test(f"{levels} levels as {form}"):
            deep = '{"a": ' + "[" * levels + "]" * levels + "}"
            event = pb.Event(id=1, event_type="a.b", payload_json=deep, outcome="failed", created_at=ago(5))
            cluster.reader.answers["ListEvents"] = pb.ListEventsResponse(events=[event])
            code, out, err = toban("event", "list", "-o", form)
            assert (code, err) == (0, "") and "a.b" in out
            if form == "json":
                assert json.loads(out)[0]["payload"] == (json.loads(deep) if levels < 200 else deep)


def test_a_generated_key_is_not_shown(cluster: Any, toban: Toban) -> None:
    made = "cli-0b9a4f6e-5a62-4c7c-9d3c-2f1e8a7b6c5d"
    events = [pb.Event(id=1, event_type="a", dedupe_key=made), pb.Event(id=2, event_type="a", dedupe_key="mine")]
    cluster.reader.answers["ListEvents"] = pb.ListEventsResponse(events=events)
    out = toban("event", "list")[1]
    assert made not in out
    assert "mine" in out


@pytest.mark.parametrize(
    ("path", "why"), [("/nowhere/x", "No such file or directory"), ("/bin/sh", "it is not text in UTF-8")]
)
def test_a_payload_that_cannot_be_read(toban: Toban, path: str, why: str) -> None:
    _, _, err = toban("event", "emit", "a", "--payload", f"@{path}")
    assert err == f"error: --payload @{path} cannot be read ({why}); give a JSON file\n"


def test_a_trigger_on_the_end_of_a_run(cluster: Any, toban: Any) -> None:
    spec = {"name": "after", "job": "load", "on_run_end": {"job": "extract", "states": ["FAILED", "TIMED_OUT"]}}
    labelled = {"name": "any", "job": "load", "on_run_end": {"labels": {"team": "etl"}, "states": ["SUCCEEDED"]}}
    listed = [
        pb.Trigger(name=one["name"], job="load", event_type="@run-end", spec_json=json.dumps(one))
        for one in (spec, labelled)
    ]
    cluster.reader.answers["ListTriggers"] = pb.ListTriggersResponse(triggers=listed)
    _, out, _ = toban("trigger", "list", "-o", "wide")
    assert "FAILED|TIMED_OUT of extract" in out and "SUCCEEDED of team=etl" in out
