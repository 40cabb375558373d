"""Jobs and schedules as text: a dry run, what changes, then an apply with a reason on condition of the version that was seen."""

from __future__ import annotations

import html
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


def fields_of(page: str) -> dict[str, str]:
    """What the form for a schedule would send."""
    form = page.partition('<form class="action"')[2]
    found = {}
    for tag in re.findall(r"<input [^>]*>", form):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and (" checked" in tag or not re.search('type="(radio|checkbox)"', tag)):
            found[name[1]] = html.unescape(value[1]) if value else ""
    for name, body in re.findall(r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL):
        [found[name]] = re.findall(r'value="([^"]*)" selected', body)
    return found | {
        name: html.unescape(text) for name, text in re.findall(r'<textarea [^>]*name="([^"]*)"[^>]*>([^<]*)<', form)
    }


def send(web: Any, path: str, **given: str) -> Any:
    return web.client.post(path, data=given, headers={"Origin": "http://localhost"})


@pytest.fixture
def nightly(edit: Any) -> Any:
    """A site with a schedule that has a key without a field."""
    spec = {"name": "nightly", "job": "hello", "daily_at": "03:00", "labels": {"team": "ops"}}
    edit.cluster.reader.responses |= {
        "GetSchedule": edit.schedule(name="nightly", spec_json=json.dumps(spec), version=7),
        "Apply": applied("updated", "Schedule", "nightly"),
    }
    return edit


def test_a_schedule_is_changed_in_a_form(nightly: Any) -> None:
    page = nightly.page("/schedules/nightly/edit")
    assert "<code>metadata.labels</code>" in page and '<option value="hello">' in page and "Asia/Tokyo" in page
    fields = fields_of(page)
    assert (fields["kind"], fields["daily_at"], fields["enabled"]) == ("daily", "03:00", "1") and "name" not in fields
    given = {**fields, "kind": "weekly", "weekly_at": "04:00", "timezone": "Europe/Berlin", "reason": "reports"}
    seen = digest(send(nightly, "/schedules/nightly/edit", **given, check="1").get_data(as_text=True))
    done = send(nightly, "/schedules/nightly/edit", **given, seen=seen)
    assert done.headers["Location"] == "/schedules/nightly?done=applied"
    [manifest] = applies(nightly)[-1].manifests
    assert manifest.expect_version == 7 and json.loads(manifest.json) == {
        "apiVersion": "toban/v1",
        "kind": "Schedule",
        "metadata": {"name": "nightly", "labels": {"team": "ops"}},
        "spec": {"job": "hello", "weekly_at": f"{fields['days']} 04:00", "timezone": "Europe/Berlin"},
    }


def test_a_schedule_is_made_in_a_form(nightly: Any) -> None:
    fields = fields_of(nightly.page("/new/schedule?job=report"))
    assert (fields["name"], fields["job"]) == ("report-daily", "report")
    send(nightly, "/new/schedule", **{**fields, "name": "other", "kind": "every", "every": "2", "unit": "h"}, check="1")
    [manifest] = applies(nightly)[-1].manifests
    body = json.loads(manifest.json)
    assert body["metadata"] == {"name": "other"} and body["spec"] == {"job": "report", "every_n_minutes": 120}


def test_what_was_typed_stays_in_the_form(nightly: Any) -> None:
    fields = fields_of(nightly.page("/schedules/nightly/edit"))
    given = {
        **fields,
        "kind": "cron",
        "cron": '"never" & <b>',
        "payload": "{day: 1}",
        "gap": "odd",
        "reason": "because",
    }
    page = send(nightly, "/schedules/nightly/edit", **given).get_data(as_text=True)
    assert "spec.payload: is not JSON" in page and applies(nightly) == []
    assert 'value="&#34;never&#34; &amp; &lt;b&gt;"' in page and "{day: 1}</textarea>" in page and "because" in page
    assert "<option selected>odd</option>" in page and '<details class="fold" open>' in page
    as_yaml = send(nightly, "/schedules/nightly/edit", **{**given, "as": "yaml"}).get_data(as_text=True)
    assert "spec.payload: is not JSON" in as_yaml and ">{day: 1}</textarea>" in as_yaml


def test_form_and_yaml_take_over_from_each_other(nightly: Any) -> None:
    fields = fields_of(nightly.page("/schedules/nightly/edit"))
    path = "/schedules/nightly/edit"
    as_yaml = send(nightly, path, **{**fields, "daily_at": "05:00", "as": "yaml"}).get_data(as_text=True)
    assert "daily_at: 05:00" in as_yaml.replace("&#39;", "") and "team: ops" in as_yaml and 'value="7"' in as_yaml
    yaml = fields_of(as_yaml)
    back = send(nightly, path, **{**yaml, "as": "form"}).get_data(as_text=True)
    assert fields_of(back)["daily_at"] == "05:00" and "metadata.labels" in back
    odd = yaml["manifest"].replace("daily_at", "weekly_on")
    for text in (odd, "kind: ["):
        page = send(nightly, path, **{**yaml, "manifest": text, "as": "form"}).get_data(as_text=True)
        assert "The form cannot hold this definition" in page and text in html.unescape(page)
    assert applies(nightly) == []


def test_a_schedule_that_the_form_cannot_hold_is_yaml(nightly: Any) -> None:
    assert "The form cannot" not in nightly.page("/schedules/nightly/edit?as=yaml")
    assert '<textarea id="manifest"' in nightly.page("/schedules/nightly/edit?as=yaml")
    spec = {"name": "nightly", "job": "hello", "daily_at": " 03:00"}
    nightly.cluster.reader.responses["GetSchedule"] = nightly.schedule(name="nightly", spec_json=json.dumps(spec))
    page = nightly.page("/schedules/nightly/edit")
    assert "The form cannot hold this definition" in page and '<textarea id="manifest"' in page
    assert "Continue in the form" not in nightly.page("/jobs/hello/edit")
