"""Jobs and schedules as text: a dry run, what changes, then an apply with a reason on condition of the version that was seen."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toban_admin_web.decide import definition_text
from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.yaml_text import parse_yaml
from toban_proto.v1 import coordinator_pb2 as pb

STORED = {"name": "hello", "steps": [{"id": "main", "argv": ["echo", "a"]}], "timeout_seconds": 60}
EDITED = """\
apiVersion: toban/v1
kind: Job
metadata: {name: hello}
spec:
  steps: [{id: main, argv: [echo, a]}]
  timeout_seconds: 90
"""
NIGHTLY = """\
apiVersion: toban/v1
kind: Schedule
metadata: {name: nightly}
spec: {job: hello, daily_at: "03:00", timezone: Europe/Berlin}
"""


def applied(action: str = "updated", kind: str = "Job", name: str = "hello", **more: Any) -> pb.ApplyResponse:
    """The answer about one definition."""
    return pb.ApplyResponse(applied=[pb.Applied(kind=kind, name=name, action=action, version=4, **more)])


def applies(web: Any) -> list[Any]:
    """The applies that were asked for."""
    return [one for one in web.cluster.reader.requests if isinstance(one, pb.ApplyRequest)]


def digest(page: str) -> str:
    """What the page says it has checked."""
    [found] = re.findall(r'name="seen" value="([0-9a-f]{64})"', page)
    return str(found)


@pytest.fixture
def edit(web: Any) -> Any:
    """A site whose job is at version 3."""
    web.cluster.reader.responses |= {"GetJob": web.job(spec_json=json.dumps(STORED), version=3), "Apply": applied()}
    return web


def test_the_stored_definition_is_shown_as_yaml(edit: Any) -> None:
    page = edit.page("/jobs/hello/edit")
    assert "timeout_seconds: 60" in page and "- echo" in page and 'name="version" value="3"' in page
    assert "/jobs/hello/edit" in edit.page("/jobs/hello")


def test_a_change_is_read_before_it_is_applied(edit: Any) -> None:
    first = edit.post("/jobs/hello/edit", manifest=EDITED, reason="slow disk")
    page = first.get_data(as_text=True)
    assert first.status_code == 400 and "Read what changes" in page and "slow disk" in page
    assert [one.dry_run for one in applies(edit)] == [True]
    assert re.search(r'class="went">-   timeout_seconds: 60<.*class="came">\+   timeout_seconds: 90<', page, re.DOTALL)
    second = edit.post("/jobs/hello/edit", manifest=EDITED.replace("\n", "\r\n"), reason="slow disk", seen=digest(page))
    assert second.status_code == 303 and second.headers["Location"] == "/jobs/hello?done=applied"
    [done] = applies(edit)
    assert (done.dry_run, done.reason) == (False, "slow disk"), "what was seen is not checked again"
    [manifest] = done.manifests
    assert manifest.expect_version == 3 and json.loads(manifest.json)["spec"]["timeout_seconds"] == 90
    assert "The definition is applied." in edit.page("/jobs/hello?done=applied")


def test_another_text_than_the_one_that_was_checked_is_not_applied(edit: Any) -> None:
    seen = digest(edit.post("/jobs/hello/edit", manifest=EDITED, check="1").get_data(as_text=True))
    answer = edit.post("/jobs/hello/edit", manifest=EDITED.replace("90", "91"), reason="x", seen=seen)
    assert answer.status_code == 400 and [one.dry_run for one in applies(edit)] == [True]


def test_a_reason_is_asked_for(edit: Any) -> None:
    seen = digest(edit.post("/jobs/hello/edit", manifest=EDITED, check="1").get_data(as_text=True))
    answer = edit.post("/jobs/hello/edit", manifest=EDITED, reason=" ", seen=seen)
    assert answer.status_code == 400 and "Give a reason" in answer.get_data(as_text=True)
    assert [one.dry_run for one in applies(edit)] == [True]


def test_a_stale_page_cannot_overwrite_a_newer_edit(edit: Any) -> None:
    def answer(request: Any) -> Any:
        raise TobanError(ErrorCode.CONFLICT, "job 'hello' is at version 4 now, not 3")

    edit.page("/jobs/hello/edit")
    edit.cluster.reader.responses["Apply"] = answer
    page = edit.post("/jobs/hello/edit", manifest=EDITED, version="3", reason="x", seen="0" * 64)
    assert page.status_code == 400 and "is at version 4 now, not 3" in page.get_data(as_text=True)
    assert "timeout_seconds: 90" in page.get_data(as_text=True), "what was typed is not lost"
    assert '<a href="/jobs/hello/edit" target="_blank"' in page.get_data(as_text=True), "the stored one is a link away"
    assert [(one.dry_run, one.manifests[0].expect_version) for one in applies(edit)] == [(True, 3)]


def test_a_change_between_the_check_and_the_apply_is_refused(edit: Any) -> None:
    seen = digest(edit.post("/jobs/hello/edit", manifest=EDITED, check="1").get_data(as_text=True))

    def answer(request: Any) -> Any:
        if not request.dry_run:
            raise TobanError(ErrorCode.CONFLICT, "job 'hello' is at version 4 now, not 3")
        return applied()

    edit.cluster.reader.responses["Apply"] = answer
    refused = edit.post("/jobs/hello/edit", manifest=EDITED, reason="x", seen=seen)
    assert refused.status_code == 409 and "is at version 4 now" in refused.get_data(as_text=True)


def test_mistakes_are_listed_with_path_and_remedy(edit: Any) -> None:
    mistakes = [
        {"path": "spec.timeout", "message": "is unknown", "hint": "did you mean <timeout_seconds>?"},
        {"path": "", "message": "is odd", "hint": ""},
    ]
    edit.refuse("Apply", ErrorCode.MANIFEST_INVALID)
    edit.cluster.reader.responses["Apply"].detail.update({"errors": mistakes, "left_out": 3})
    page = edit.post("/jobs/hello/edit", manifest=EDITED, reason="x").get_data(as_text=True)
    assert "<li>spec.timeout: is unknown; did you mean &lt;timeout_seconds&gt;?</li>" in page
    assert "<li>manifest: is odd</li>" in page and "+3" in page and 'name="seen"' not in page
    page = edit.post("/jobs/hello/edit", manifest="kind: [", check="1").get_data(as_text=True)
    assert re.search("<li>manifest:1:[0-9]+: ", page) and applies(edit) == []
    page = edit.post("/jobs/hello/edit", manifest="kind: Job\nspec: !!set {a}\n", check="1").get_data(as_text=True)
    assert "use texts, numbers and lists" in page


MISFIT = {
    "path": "spec.payload_schema",
    "message": 'schedule \'nightly\' would fail: payload.n: "x" is not of type "integer"',
    "hint": "change its payload in the same apply, or use --force (`force` in REST)",
}


def test_payloads_that_would_fail_are_shown_and_applied_only_when_that_is_chosen(edit: Any) -> None:
    def answer(request: Any) -> Any:
        if not request.force:
            raise TobanError(ErrorCode.PAYLOAD_INVALID, "1 problem", detail={"errors": [MISFIT]})
        return applied()

    edit.cluster.reader.responses["Apply"] = answer
    page = edit.post("/jobs/hello/edit", manifest=EDITED, check="1").get_data(as_text=True)
    assert (
        "<li>spec.payload_schema: schedule &#39;nightly&#39; would fail: payload.n:" in page and "--force" not in page
    )
    assert "+   timeout_seconds: 90<" in page and 'name="force"' in page and "cannot be applied" not in page
    given = {"manifest": EDITED, "reason": "x", "seen": digest(page)}
    refused = edit.post("/jobs/hello/edit", **given)
    assert refused.status_code == 400 and 'name="force"' in refused.get_data(as_text=True)
    assert edit.post("/jobs/hello/edit", **given, force="1").status_code == 303
    [done] = applies(edit)
    assert done.force and not done.dry_run


def test_a_payload_that_is_refused_in_any_case_cannot_be_forced(edit: Any) -> None:
    edit.refuse("Apply", ErrorCode.PAYLOAD_INVALID)
    page = edit.post("/jobs/hello/edit", manifest=EDITED, check="1").get_data(as_text=True)
    assert "This cannot be applied" in page and 'name="force"' not in page and 'name="seen"' not in page
    edit.cluster.reader.responses["Apply"] = applied()
    assert 'name="force"' not in edit.post("/jobs/hello/edit", manifest=EDITED, check="1").get_data(as_text=True)


def test_a_value_that_may_be_meant_as_a_boolean_is_shown(edit: Any) -> None:
    text = EDITED + "  default_payload: {country: NO}\n"
    page = edit.post("/jobs/hello/edit", manifest=text, check="1").get_data(as_text=True)
    assert "<li>manifest:7:30: NO is text, and not the boolean false;" in page and digest(page)
    page = edit.post("/jobs/hello/edit", manifest=text.replace("NO", "'NO'"), check="1").get_data(as_text=True)
    assert "is text, and not" not in page


def test_an_unquoted_template_is_a_mistake_with_its_place(edit: Any) -> None:
    answer = edit.post("/new/job", manifest="kind: Job\nmetadata: {name: {{x}}}\n", version="0", check="1")
    assert answer.status_code == 200 and "<li>manifest:2:19: the key is a mapping" in answer.get_data(as_text=True)


def test_the_script_gets_the_check_alone(edit: Any) -> None:
    page = edit.page("/jobs/hello/edit")
    [csrf] = re.findall(r'name="csrf" value="([^"]*)"', page)
    given = {"csrf": csrf, "version": "3", "manifest": EDITED}
    answer = edit.client.post("/jobs/hello/edit?part=1", data=given, headers={"Origin": "http://localhost"})
    text = answer.get_data(as_text=True)
    assert answer.status_code == 200 and digest(text) and "<html" not in text
    assert [one.dry_run for one in applies(edit)] == [True]


def test_a_schedule_shows_its_next_slots_before_it_is_made(edit: Any) -> None:
    edit.cluster.reader.responses |= {
        "Apply": applied("created", "Schedule", "nightly", clock_change="2027-03-28: 02:30 does not exist"),
        "NextSlots": pb.NextSlotsResponse(
            slots=[pb.NextSlot(at=edit.stamp(-60), local="2026-11-24T03:00:00+01:00")], timezone="Europe/Berlin"
        ),
    }
    assert "hello-daily" in edit.page("/new/schedule?job=hello")
    page = edit.post("/new/schedule?job=hello", manifest=NIGHTLY, check="1").get_data(as_text=True)
    assert "2026-11-24 03:00:00+01:00" in page and "Europe/Berlin" in page and "02:30 does not exist" in page
    [slots] = [one for one in edit.cluster.reader.requests if isinstance(one, pb.NextSlotsRequest)]
    assert slots.count == 10 and json.loads(slots.manifest.json)["metadata"]["name"] == "nightly"
    done = edit.post("/new/schedule", manifest=NIGHTLY, reason="reports", seen=digest(page))
    assert done.headers["Location"] == "/schedules/nightly?done=applied"
    assert [one.manifests[0].expect_version for one in applies(edit)] == [0], "it must not be there yet"


@pytest.mark.seed(52)
def test_a_schedule_is_edited_on_condition_of_its_version(edit: Any) -> None:
    spec = {"name": "nightly", "job": "hello", "daily_at": "03:00"}
    edit.cluster.reader.responses |= {
        "GetSchedule": edit.schedule(name="nightly", spec_json=json.dumps(spec), version=7),
        "Apply": applied("unchanged", "Schedule", "nightly"),
    }
    page = edit.post("/schedules/nightly/edit", manifest=NIGHTLY, check="1").get_data(as_text=True)
    assert "Nothing differs." in page
    done = edit.post("/schedules/nightly/edit", manifest=NIGHTLY, reason="x", seen=digest(page))
    assert done.headers["Location"] == "/schedules/nightly?done=applied_unchanged"
    assert {one.manifests[0].expect_version for one in applies(edit)} == {7}


def test_pages_for_new_definitions_are_for_editors(edit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "/new/job" in edit.page("/jobs") and "/new/schedule" in edit.page("/schedules")
    assert "argv" in edit.page("/new/job")
    people = edit.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="op", role="operator"))
    for path in ("/jobs/hello/edit", "/schedules/nightly/edit", "/new/job", "/new/schedule"):
        assert edit.get(path).status_code == 403
    assert "/new/job" not in edit.page("/jobs") and "/edit" not in edit.page("/jobs/hello")


def test_a_text_is_parsed_once(edit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(source: str, *given: Any) -> list[object]:
        parsed.append(source)
        return parse_yaml(source, *given)

    monkeypatch.setattr(definition_text, "parse_yaml", parse)
    page = edit.post("/jobs/hello/edit", manifest=EDITED, check="1").get_data(as_text=True)
    assert len(parsed) == 1
    edit.post("/jobs/hello/edit", manifest=EDITED, reason="x", seen=digest(page))
    assert len(parsed) == 2
    edit.post("/jobs/hello/edit", manifest=EDITED, reason="", seen=digest(page))
    assert len(parsed) == 3


def test_a_definition_that_no_form_can_hold_is_left_to_the_command(edit: Any) -> None:
    def stored(steps: int) -> Any:
        spec = {"name": "hello", "steps": [{"id": f"s{n}", "argv": ["echo", "x" * 100]} for n in range(steps)]}
        return edit.job(spec_json=json.dumps(spec), version=3)

    edit.cluster.reader.responses["GetJob"] = stored(100)
    page = edit.page("/jobs/hello/edit")
    assert "<textarea" in page and "toban apply" not in page
    edit.cluster.reader.responses["GetJob"] = stored(450)
    page = edit.page("/jobs/hello/edit")
    assert "toban apply" in page and "<textarea" not in page and 'class="action"' not in page


def test_a_text_that_was_sent_comes_back_whatever_its_size(edit: Any) -> None:
    long = EDITED + "#" + "x" * 62_000
    page = edit.post("/jobs/hello/edit", manifest=long, check="1").get_data(as_text=True)
    assert long in page


def test_a_change_that_is_too_long_to_be_read_is_not_applied(edit: Any) -> None:
    long = EDITED + "  env: {" + "".join(f"K{n}: v, " for n in range(2001)) + "}\n"
    page = edit.post("/jobs/hello/edit", manifest=long, check="1").get_data(as_text=True)
    assert "too long to be compared" in page and "toban apply" in page and 'name="seen"' not in page
    answer = edit.post("/jobs/hello/edit", manifest=long, reason="x")
    assert answer.status_code == 400 and "too long to be shown" in answer.get_data(as_text=True)
    assert [one.dry_run for one in applies(edit)] == [True]
