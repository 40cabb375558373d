"""Actions on a run: what the page offers, the form with its reason, what is sent, and what a refusal shows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.common_pb2 import UsageSample

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "title": "Who", "description": "Who is greeted"},
        "times": {"type": "integer", "minimum": 1, "maximum": 9},
        "loud": {"type": "boolean"},
        "mode": {"enum": ["soft", 2]},
    },
}


def offered(page: str) -> list[str]:
    """The actions that the page of a run offers."""
    return re.findall(r'href="/runs/\d+/([a-z-]+)">', page)


def sent(web: Any, kind: type) -> list[Any]:
    """The requests of one kind."""
    return [one for one in web.cluster.reader.requests if isinstance(one, kind)]


@pytest.fixture
def with_schema(web: Any) -> Any:
    """A run that has ended, of a job whose payload has a schema."""
    web.cluster.reader.responses["GetRun"] = web.run(
        1, "FAILED", finished_at=web.stamp(5), payload_json='{"name": "world", "times": 2, "extra": [1]}'
    )
    web.cluster.reader.responses["GetJob"] = web.job(spec_json=json.dumps({"name": "hello", "payload_schema": SCHEMA}))
    return web


@pytest.mark.parametrize(
    ("state", "actions"),
    [
        ("PENDING", ["cancel", "kill", "note"]),
        ("RUNNING", ["cancel", "kill", "note"]),
        ("CANCEL_REQUESTED", ["kill", "note"]),
        ("ORPHANED", ["cancel", "kill", "declare-lost", "note"]),
        ("SUCCEEDED", ["rerun", "note"]),
        ("FAILED", ["rerun", "note"]),
    ],
)
def test_a_page_offers_what_its_state_allows(web: Any, state: str, actions: list[str]) -> None:
    web.cluster.reader.responses["GetRun"] = web.run(1, state)
    assert offered(web.page("/runs/1")) == actions


def test_what_stops_a_run_is_explained_beside_the_buttons(web: Any) -> None:
    for state, explained in (("RUNNING", ["Cancel", "Kill"]), ("CANCEL_REQUESTED", ["Kill"]), ("SUCCEEDED", [])):
        web.cluster.reader.responses["GetRun"] = web.run(1, state)
        assert re.findall(r"(Cancel|Kill) (?:asks|ends)", web.page("/runs/1")) == explained


def test_a_viewer_is_offered_nothing_and_gets_no_form(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = web.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="vic", role="viewer"))
    assert offered(web.page("/runs/1")) == []
    response = web.get("/runs/1/cancel")
    assert response.status_code == 403 and "needs role operator" in response.get_data(as_text=True)


@pytest.mark.parametrize(
    ("action", "kind", "mode", "done"),
    [("cancel", pb.CancelRunRequest, "", "canceled"), ("kill", pb.CancelRunRequest, "kill", "killed")],
)
def test_cancel_and_kill_are_told_apart(web: Any, action: str, kind: type, mode: str, done: str) -> None:
    response = web.post(f"/runs/1/{action}", reason=" wrong input ")
    assert (response.status_code, response.location) == (303, f"/runs/1?done={done}")
    [request] = sent(web, kind)
    assert (request.id, request.reason, request.mode) == (1, "wrong input", mode)
    assert 'role="status">The' in web.page(response.location)


def test_a_kill_is_named_on_the_page_of_the_run(web: Any) -> None:
    web.cluster.reader.responses["GetRun"] = web.run(
        1,
        "CANCEL_REQUESTED",
        cancel_requested_at=web.stamp(2),
        events=[pb.RunEvent(type="kill_requested", at=web.stamp(2), actor="user ada")],
    )
    text = web.page("/runs/1")
    assert "Kill requested" in text and "Cancel requested" not in text


def test_an_orphaned_run_is_declared_lost_and_a_run_is_noted(web: Any) -> None:
    assert web.post("/runs/1/declare-lost", reason="host burned").status_code == 303
    assert [one.reason for one in sent(web, pb.DeclareRunLostRequest)] == ["host burned"]
    assert web.post("/runs/1/note", reason="known bug").location == "/runs/1?done=noted#events-title"
    assert [one.text for one in sent(web, pb.NoteRunRequest)] == ["known bug"]


@pytest.mark.parametrize("action", ["cancel", "kill", "declare-lost", "note"])
def test_an_action_without_a_reason_is_not_sent(web: Any, action: str) -> None:
    response = web.post(f"/runs/1/{action}", reason="  ")
    assert response.status_code == 400 and "Give a reason" in response.get_data(as_text=True)
    assert not [one for one in web.cluster.reader.requests if not isinstance(one, pb.GetRunRequest)]
    long = web.post(f"/runs/1/{action}", reason="x" * 1001)
    assert long.status_code == 400 and "1,000 characters" in long.get_data(as_text=True)


def test_a_refusal_is_shown_beside_the_form_as_it_was_filled_in(web: Any) -> None:
    web.refuse("CancelRun", ErrorCode.RESOURCE_INVALID_STATE, "run 1 has ended <already>")
    response = web.post("/runs/1/cancel", reason="wrong <input>")
    text = response.get_data(as_text=True)
    assert response.status_code == 409 and "run 1 has ended &lt;already&gt;" in text and "wrong &lt;input&gt;" in text


def test_a_refusal_of_the_persons_rules_is_a_page(web: Any) -> None:
    error = TobanError(ErrorCode.PERMISSION_DENIED, "no rule allows ada to cancel", detail={"user": "ada"})
    web.cluster.reader.responses["CancelRun"] = error
    response = web.post("/runs/1/cancel", reason="x")
    assert response.status_code == 403 and "no rule allows ada" in response.get_data(as_text=True)


def test_a_form_without_the_token_of_the_session_changes_nothing(web: Any) -> None:
    for headers in ({"Origin": "http://localhost"}, {"Origin": "http://elsewhere"}):
        assert web.client.post("/runs/1/cancel", data={"reason": "x"}, headers=headers).status_code == 403
    assert sent(web, pb.CancelRunRequest) == []


def test_a_run_is_repeated_as_it_was_once_for_each_form(with_schema: Any) -> None:
    web = with_schema
    response = web.post("/runs/1/rerun", as_it_was="1", reason="try again")
    assert response.location == "/runs/12?done=rerun"
    [request] = sent(web, pb.RerunRunRequest)
    assert (request.payload_json, request.latest_definition, request.reason) == ("", False, "try again")
    assert re.fullmatch(r"site-[0-9a-f]{24}", request.idempotency_key)


def form_of(page: str) -> dict[str, str]:
    """What the fields for the payload have."""
    found = dict(re.findall(r'name="(payload\.[a-z]+)" value="([^"]*)"', page))
    for name, body in re.findall(r'<select[^>]* name="(payload\.[a-z]+)"[^>]*>(.*?)</select>', page, re.DOTALL):
        found[name] = "".join(re.findall(r'value="([^"]*)" selected', body))
    return found | dict(re.findall(r'<textarea[^>]* name="(payload)"[^>]*>(.*?)</textarea>', page, re.DOTALL))


def test_the_form_has_a_field_for_each_property(with_schema: Any) -> None:
    page = with_schema.page("/runs/1/rerun")
    assert form_of(page) == {
        "payload.name": "world",
        "payload.times": "2",
        "payload.loud": "",
        "payload.mode": "",
        "payload": "{\n  &#34;extra&#34;: [\n    1\n  ]\n}",
    }
    assert "Who is greeted" in page and 'type="number" min="1" max="9"' in page


FORM = {"payload.name": "world", "payload.times": "2", "payload": '{"extra": [1]}'}


@pytest.mark.parametrize(
    ("changes", "payload", "whole"),
    [
        ({}, "", False),
        ({"payload.name": "moon", "payload.loud": "true"}, '{"name": "moon", "loud": true}', False),
        ({"payload.mode": "2"}, '{"mode": 2}', False),
        ({"payload": ""}, '{"name": "world", "times": 2}', True),
        ({"payload.times": ""}, '{"name": "world", "extra": [1]}', True),
    ],
)
def test_only_what_was_changed_is_sent(with_schema: Any, changes: dict[str, str], payload: str, whole: bool) -> None:
    response = with_schema.post("/runs/1/rerun", **FORM, latest="1") if not changes else None
    response = response or with_schema.post("/runs/1/rerun", **(FORM | changes), latest="1")
    assert response.status_code == 303, response.get_data(as_text=True)
    [request] = sent(with_schema, pb.RerunRunRequest)
    assert (request.payload_json, request.replace_payload, request.latest_definition) == (payload, whole, True)


def test_a_field_that_cannot_be_read_is_marked_and_nothing_is_sent(with_schema: Any) -> None:
    changes = {"payload.name": "", "payload.times": "two", "payload": "[1]"}
    response = with_schema.post("/runs/1/rerun", **(FORM | changes))
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and sent(with_schema, pb.RerunRunRequest) == []
    for seen in ("required by the schema", "not a whole number", "not a JSON object", 'value="two"'):
        assert seen in text


def test_a_run_of_a_deleted_job_is_repeated_with_json(web: Any) -> None:
    web.cluster.reader.responses["GetRun"] = web.run(1, "FAILED")
    web.refuse("GetJob", ErrorCode.JOB_NOT_FOUND, "there is no job hello")
    assert "The job was deleted" in web.page("/runs/1/rerun")
    assert web.post("/runs/1/rerun", payload='{"name": "moon"}').status_code == 303
    assert [one.payload_json for one in sent(web, pb.RerunRunRequest)] == ['{"name": "moon"}']


def test_a_failed_run_is_repeated_from_its_step_or_whole(with_schema: Any) -> None:
    web, link = with_schema, "/runs/1/rerun?from_failed_step=1"
    steps = [
        pb.RunStep(number=n, id=name, state=state)
        for n, name, state in ((1, "load", "succeeded"), (2, "pack", "failed"))
    ]
    attempts = [pb.Attempt(token=n, attempt=n, state="FAILED", steps=steps) for n in (1, 2)]
    run = web.run(1, "FAILED", finished_at=web.stamp(5), attempts=attempts, steps=steps, failed_step=2)
    web.cluster.reader.responses["GetRun"] = run
    assert web.page("/runs/1").count(f'href="{link}"') == 1
    assert link not in web.page("/runs/1?dispatch=1")
    whole, later = web.page("/runs/1/rerun"), web.page(link)
    for page in (whole, later):
        assert "Whole run" in page and "From step 2: pack" in page
    assert whole.count('name="from_failed_step"') == 0 and 'name="latest"' in whole
    # Of another definition the steps may be others.
    assert later.count('name="from_failed_step"') == 2 and 'name="latest"' not in later
    asked = []
    for fields in ({"as_it_was": "1", "from_failed_step": "1"}, {**FORM, "from_failed_step": "1"}, {"as_it_was": "1"}):
        web.post("/runs/1/rerun", **fields)
        asked += [(one.from_failed_step, one.latest_definition) for one in sent(web, pb.RerunRunRequest)]
    assert asked == [(True, False), (True, False), (False, False)]


def test_each_dispatch_has_a_number_of_its_own(web: Any) -> None:
    run = web.run(1, "RUNNING", attempts=[], steps=[pb.RunStep(number=1, id="load", state="running")])
    # The executor of the first dispatch was lost: the second one repeats the same attempt.
    first = run.attempts.add(token=1, attempt=1, state="LOST", executor="executor-1")
    first.steps.add(number=1, id="load", name="first load", state="lost")
    run.attempts.add(token=2, attempt=1, state="RUNNING", executor="executor-2")
    web.cluster.reader.responses["GetRun"] = run
    page = web.page("/runs/1")
    assert "Dispatch 1 " in page and re.search(r'dispatch=2#attempts-title" aria-current="true"', page)
    assert '<p id="log-heading" hidden>Dispatch %</p>' in page and "Attempt 1 " not in page
    assert "first load" not in page
    earlier = web.page("/runs/1?dispatch=1")
    assert "first load" in earlier and re.search(r'dispatch=1#attempts-title" aria-current="true"', earlier)
    for odd in ("0", "9", "x", "99999999", "¹"):
        assert re.search(r'dispatch=2#attempts-title" aria-current="true"', web.page(f"/runs/1?dispatch={odd}"))


def test_a_dispatch_is_an_attempt_when_each_is_one_of_its_own(web: Any) -> None:
    run = web.run(1, "RUNNING", attempt=2, attempts=[])
    run.attempts.add(token=1, attempt=1, state="FAILED", executor="executor-1")
    run.attempts.add(token=web.token, attempt=2, state="RUNNING", executor="executor-2")
    web.cluster.reader.responses["GetRun"] = run
    page = web.page("/runs/1")
    assert "Attempt 1 " in page and "Dispatch " not in page and "hidden>Attempt %</p>" in page
    assert f'<p class="attempt" data-token="{web.token}">Attempt 2</p>' in page
    assert f'<p class="attempt" data-token="{web.token}">Attempt 2</p>' in web.page("/runs/1/log")


def test_why_a_run_waits_is_on_its_page(web: Any) -> None:
    web.cluster.reader.responses["ExplainRun"] = pb.RunExplanation(
        state="PENDING",
        reasons=["no executor <fits>", "limit pool:licences is reached", "limit pool:licences-eu is reached"],
        checks=[pb.RunCheck(name="executor", blocks=True, message="none has a free slot")],
        limits=[pb.RunLimit(name="pool:licences", effective=2, held=2, weight=1, blocks=True, message="2 of 2 held")],
        executors=[pb.RunCandidate(worker_id=3, executor="executor-1", running=16, slots=16, message="it is full")],
    )
    text = web.page("/runs/1")
    for seen in ("no executor &lt;fits&gt;", "none has a free slot", "it is full", "blocks"):
        assert seen in text
    link = '<a href="/limits/one?name=pool:licences">pool:licences</a>'
    assert text.count(f"limit {link} is reached") == 1 and "limit pool:licences-eu is reached" in text
    web.refuse("ExplainRun", ErrorCode.UNIMPLEMENTED)
    assert "why-title" not in web.page("/runs/1")


@pytest.mark.parametrize(("button", "end"), [({"as_it_was": "1"}, "-same"), ({}, "")])
def test_a_rerun_keeps_its_key_when_its_fate_is_not_known(with_schema: Any, button: dict[str, str], end: str) -> None:
    with_schema.cluster.reader.responses["RerunRun"] = TobanError(ErrorCode.DEADLINE_EXCEEDED, "too slow")
    key = "site-" + "b" * 24
    response = with_schema.post("/runs/1/rerun", **{"key": key + end, "payload.name": "world", **button})
    text = response.get_data(as_text=True)
    assert response.status_code >= 400
    assert f'name="key" value="{key}"' in text and f'name="key" value="{key}-same"' in text


def test_a_page_without_its_reasons_is_still_a_page(web: Any) -> None:
    web.cluster.reader.responses["ExplainRun"] = TobanError(ErrorCode.DEADLINE_EXCEEDED, "too slow")
    web.cluster.reader.responses["GetRun"] = web.run(1, "PENDING")
    assert offered(web.page("/runs/1")) == ["cancel", "kill", "note"]


def test_a_run_that_runs_has_its_use_of_cpu_and_memory(web: Any) -> None:
    samples = [
        UsageSample(at=web.stamp(ago), cpu_seconds=cpu, memory_bytes=64 << 20, processes=2)
        for ago, cpu in ((10, 1.0), (5, 3.5))
    ]
    responses = web.cluster.reader.responses
    responses["GetRun"] = web.run(1, "RUNNING", started_at=web.stamp(20))
    responses["GetRunUsage"] = pb.RunUsage(run_id=1, samples=samples)
    page = web.page("/runs/1")
    assert "0.50 cores, peak 0.50" in page and "64 MiB, peak 64" in page and "Processes: 2" in page
    web.refuse("GetRunUsage", ErrorCode.UNIMPLEMENTED)
    assert "cores, peak" not in web.page("/runs/1")


MASKED = {"name": "***", "times": "***", "mode": "***", "extra": 1}
"""What the coordinator shows: a number that is masked is no number."""


@pytest.mark.parametrize(
    ("changes", "payload", "whole"),
    [
        ({}, "", False),
        ({"payload": '{"extra": 2}'}, '{"extra": 2}', False),
        ({"payload": ""}, '{"mode": "***", "name": "***", "times": "***"}', True),
        ({"payload.times": "3"}, '{"times": 3}', False),
    ],
)
def test_masks_that_were_left_alone_stay_masks(
    with_schema: Any, changes: dict[str, str], payload: str, whole: bool
) -> None:
    run = with_schema.run(1, "FAILED", finished_at=with_schema.stamp(5), payload_json=json.dumps(MASKED))
    with_schema.cluster.reader.responses["GetRun"] = run
    form = {"payload.name": "***", "payload.times": '"***"', "payload.mode": '"***"', "payload": '{"extra": 1}'}
    assert with_schema.post("/runs/1/rerun", **(form | changes)).status_code == 303
    [request] = sent(with_schema, pb.RerunRunRequest)
    given = json.loads(request.payload_json or "{}")
    assert (given, request.replace_payload) == (json.loads(payload or "{}"), whole)
