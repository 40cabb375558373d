"""A job is edited in a real browser: checked while it is typed, compared, applied with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page, find_browser

pytestmark = [
    pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium"),
]
READY = "document.readyState === 'complete'"
STORED = {"name": "hello", "steps": [{"id": "main", "argv": ["echo", "a"]}], "timeout_seconds": 60}
TYPE = """(() => {
  const text = document.getElementById("manifest");
  text.value = text.value.replace(%s, %s);
  text.dispatchEvent(new InputEvent("input", {bubbles: true}));
})()"""


def type_over(page: Page, old: str, new: str) -> None:
    """As a person who changes a part of the text."""
    page.run(TYPE % (json.dumps(old), json.dumps(new)))


def test_a_job_is_edited_while_it_is_checked(page: Page, address: str, web: Any) -> None:
    def apply(request: Any) -> Any:
        seconds = json.loads(request.manifests[0].json)["spec"]["timeout_seconds"]
        if seconds == "ninety":
            mistakes = [{"path": "spec.timeout_seconds", "message": "is <b>text</b>", "hint": "write a number"}]
            raise TobanError(ErrorCode.MANIFEST_INVALID, "one mistake", detail={"errors": mistakes})
        action = "unchanged" if seconds == 60 else "updated"
        return pb.ApplyResponse(applied=[pb.Applied(kind="Job", name="hello", action=action, version=4)])

    web.cluster.reader.responses |= {"GetJob": web.job(spec_json=json.dumps(STORED), version=3), "Apply": apply}
    for width, dark in ((1280, True), (360, False)):
        page.look(width=width, dark=dark)
        page.open(address + "/jobs/hello")
        page.run("document.querySelector('a[href$=\"/edit\"]').click()")
        page.until(f"location.pathname === '/jobs/hello/edit' && {READY}")
        page.until("!!document.querySelector('#checked .empty')")
        type_over(page, "60", "ninety")
        page.until("!!document.querySelector('#checked .mistakes')")
        assert page.run("document.querySelector('#checked li').textContent") == (
            "spec.timeout_seconds: is <b>text</b>; write a number"
        )
        type_over(page, "ninety", "90")
        page.until("!!document.querySelector('#checked [name=seen]')")
        lines = page.run("[...document.querySelectorAll('.went, .came')].map((one) => one.innerText.trim())")
        assert lines == ["-   timeout_seconds: 60", "+   timeout_seconds: 90"]
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.run("document.getElementById('reason').value = 'slow disk'")
    page.run("document.querySelector('form.action button.primary').click()")
    page.until(f"Boolean(document.querySelector('.message.good')) && {READY}")
    done = [one for one in web.cluster.reader.requests if isinstance(one, pb.ApplyRequest) and not one.dry_run]
    assert [(one.reason, one.manifests[0].expect_version) for one in done] == [("slow disk", 3)]
    assert page.complaints == []


def test_a_check_that_does_not_come_is_told(page: Page, address: str, web: Any) -> None:
    web.cluster.reader.responses |= {
        "GetJob": web.job(spec_json=json.dumps(STORED)),
        "Apply": pb.ApplyResponse(applied=[pb.Applied(kind="Job", name="hello", action="unchanged")]),
    }
    page.open(address + "/jobs/hello/edit")
    page.until("!!document.querySelector('#checked .empty')")
    # No answer of the site at all, as when it is away.
    page.run("window.fetch = () => Promise.reject(new TypeError('away'))")
    type_over(page, "60", "61")
    page.until("!!document.querySelector('#checked .advice')")
    assert "could not be checked" in page.run("document.getElementById('checked').textContent")
    assert not page.run("!!document.querySelector('[name=seen]')"), "what was checked before does not count"
    assert page.complaints == []


def test_a_job_is_edited_in_a_language_that_the_address_names(page: Page, address: str, web: Any) -> None:
    answer = pb.ApplyResponse(applied=[pb.Applied(kind="Job", name="hello", action="updated", version=4)])
    web.cluster.reader.responses |= {
        "GetJob": web.job(spec_json=json.dumps(STORED), version=3),
        "Apply": answer,
    }
    page.open(address + "/jobs/hello/edit?lang=ja")
    page.until("!!document.querySelector('#checked [name=seen]')")
    type_over(page, "60", "90")
    page.until("document.querySelector('#checked .came')?.innerText.includes('timeout_seconds: 90')")
    assert page.run("document.querySelectorAll('#checked form, #checked header').length") == 0, "the result alone"
    page.run("document.getElementById('reason').value = 'slow disk'")
    page.run("document.querySelector('form.action button.primary').click()")
    page.until(f"location.pathname === '/jobs/hello' && {READY}")
    assert page.run("document.documentElement.lang") == "ja"
    done = [one for one in web.cluster.reader.requests if isinstance(one, pb.ApplyRequest) and not one.dry_run]
    assert [one.reason for one in done] == ["slow disk"]
    assert page.complaints == []


def test_a_schedule_is_edited_in_a_form_while_it_is_checked(page: Page, address: str, web: Any) -> None:
    def slots(request: Any) -> Any:
        spec = json.loads(request.manifest.json)["spec"] if request.manifest.json else {}
        return pb.NextSlotsResponse(
            slots=[pb.NextSlot(at=web.stamp(-60), local=f"2026-11-24T{spec.get('weekly_at', '')}")]
        )

    spec = {"name": "nightly", "job": "hello", "daily_at": "03:00"}
    web.cluster.reader.responses |= {
        "GetSchedule": web.schedule(name="nightly", spec_json=json.dumps(spec), version=7),
        "Apply": pb.ApplyResponse(applied=[pb.Applied(kind="Schedule", name="nightly", action="updated", version=8)]),
        "NextSlots": slots,
    }
    for width, dark in ((1280, True), (390, False)):
        page.look(width=width, dark=dark)
        page.open(address + "/schedules/nightly/edit")
        page.until("!!document.querySelector('#checked .coming')")
        shown = "[...document.querySelectorAll('.kind-fields')].filter((one) => one.checkVisibility()).length"
        assert page.run(shown) == 1, "the fields of the chosen kind alone"
        page.run("document.getElementById('kind-weekly').click()")
        page.until("document.querySelector('#checked .coming')?.innerText.includes('mon-fri 03:00')")
        assert page.run(shown) == 1 and page.run("document.getElementById('weekly_at').checkVisibility()")
        page.run("document.getElementById('day-sun').click()")
        page.until("document.querySelector('#checked .coming')?.innerText.includes('mon-fri,sun 03:00')")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
    # What is wrong in a kind that is not chosen does not matter.
    page.run("document.getElementById('every').value = 'often'")
    page.run("document.getElementById('reason').value = 'no work on Saturdays'")
    page.run("document.querySelector('form.action button.primary').click()")
    page.until(f"Boolean(document.querySelector('.message.good')) && {READY}")
    [done] = [one for one in web.cluster.reader.requests if isinstance(one, pb.ApplyRequest) and not one.dry_run]
    assert json.loads(done.manifests[0].json)["spec"] == {"job": "hello", "weekly_at": "mon-fri,sun 03:00"}
    assert page.complaints == []
