"""Actions in a real browser: forms that the policy lets through, changes that go on by themselves, saved views."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page, find_browser
from toban_testing.site_messages import limit_message, rule_message, setting_message

pytestmark = [
    pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium"),
]
READY = "document.readyState === 'complete'"
ASKED = "Boolean(document.querySelector('dialog.action[open]'))"


def test_a_run_is_killed_with_a_reason(page: Page, address: str, web: Any) -> None:
    page.open(address + "/runs/1")
    page.run("document.querySelector('a[href$=\"/kill\"]').click()")
    page.until(ASKED)
    assert page.run("location.pathname") == "/runs/1", "the run stays in sight"
    assert page.run("document.activeElement.id") == "reason"
    page.run("document.querySelector('dialog form.action button:not(.chip)').click()")
    assert page.run(ASKED), "the browser asks for the reason"
    page.run("document.getElementById('reason').value = 'stuck'")
    page.run("document.querySelector('dialog form.action button:not(.chip)').click()")
    page.until(f"document.querySelector('main .message') && {READY}")
    assert page.run("document.querySelector('main .message').textContent") == "The kill was requested."
    page.until("document.activeElement.matches('.message')")
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.CancelRunRequest)]
    assert (request.mode, request.reason) == ("kill", "stuck")
    assert page.run("localStorage.getItem('reasons run_actions.kill')") == '["stuck"]'
    assert page.complaints == []


def test_a_form_over_the_page_is_left_and_offers_the_last_reasons(page: Page, address: str) -> None:
    page.open(address + "/runs/1")
    page.run("localStorage.setItem('reasons run_actions.kill', JSON.stringify(['<b>stuck</b>', 'holiday']))")
    page.run("localStorage.setItem('reasons job_actions.disable', JSON.stringify(['of another action']))")
    page.run("document.querySelector('a[href$=\"/kill\"]').click()")
    page.until(ASKED)
    assert page.run("[...document.querySelectorAll('dialog .chip')].map((one) => one.textContent)") == [
        "<b>stuck</b>",
        "holiday",
    ]
    page.run("document.querySelectorAll('dialog .chip')[1].click()")
    assert page.run("document.getElementById('reason').value") == "holiday"
    page.run("document.querySelector('dialog .actions a').click()")
    page.until("!document.querySelector('dialog.action')")
    assert page.run("location.pathname") == "/runs/1" and page.complaints == []


def test_a_form_over_the_page_begins_at_what_is_chosen(page: Page, address: str, web: Any) -> None:
    web.cluster.accounts.own["ListRules"] = pb.ListRulesResponse(rules=[rule_message(role="operator")])
    page.open(address + "/users/bob")
    page.run("document.querySelector('a[href$=\"/role\"]').click()")
    page.until(ASKED)
    assert page.run("document.activeElement.id") == "role-operator" and page.complaints == []


def test_the_notice_is_in_view_above_what_has_changed_and_has_the_focus(page: Page, address: str, web: Any) -> None:
    settings = [setting_message(name=f"of_this_test_{n}") for n in range(40)]
    web.cluster.reader.responses["ListSettings"] = pb.ListSettingsResponse(settings=settings)
    page.look(height=500)
    page.open(address + "/settings?done=setting_changed#of_this_test_39")
    page.until("document.activeElement.matches('.message.good')")
    notice, row = (f"document.querySelector('{one}').getBoundingClientRect()" for one in (".message.good", ":target"))
    assert page.run(f"{notice}.top > 0 && {notice}.bottom < {row}.top && {row}.bottom < innerHeight")


def test_a_form_that_needs_more_has_a_page_of_its_own(page: Page, address: str) -> None:
    page.open(address + "/jobs/hello")
    page.run("document.querySelector('a[href$=\"/edit\"]').click()")
    page.until(f"location.pathname === '/jobs/hello/edit' && {READY}")
    assert page.complaints == []


def test_a_change_of_many_runs_goes_on_by_itself(
    page: Page, address: str, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(request: Any) -> Any:
        begin = int(request.filter.page.cursor or 0)
        return pb.ChangeRunsResponse(
            matched=10, changed=0 if request.dry_run else 10, next_cursor=str(begin + 10) if begin < 20 else ""
        )

    web.cluster.reader.responses["CancelRuns"] = part
    page.open(address + "/runs/cancel?job=hello")
    monkeypatch.setattr("toban_admin_web.views.runs.bulk_actions.PART_SECONDS", -1)
    page.run("document.getElementById('reason').value = 'holiday'")
    page.run("document.querySelector('form.action button:not(.chip)').click()")
    page.until(f"{READY} && document.querySelector('main .big')?.textContent.includes('30 of 30')")
    changing = [one for one in web.cluster.reader.requests if isinstance(one, pb.CancelRunsRequest) and not one.dry_run]
    assert [one.filter.page.cursor for one in changing] == ["", "10", "20"]
    assert page.complaints == []


def test_a_view_is_saved_opened_and_removed(page: Page, address: str) -> None:
    page.open(address + "/runs")
    assert page.run("document.getElementById('views').hidden"), "there is nothing to save without a filter"
    page.open(address + "/runs?state=FAILED&job=hello&cursor=5")
    page.run("document.getElementById('view-name').value = '<b>failures</b>'")
    page.run("document.querySelector('#views form button').click()")
    assert page.run("document.querySelector('#views li a').textContent") == "<b>failures</b>"
    page.open(address + "/runs")
    page.run("document.querySelector('#views li a').click()")
    page.until(f"location.search === '?state=FAILED&job=hello' && {READY}")
    assert page.run("document.querySelector('#views li a').getAttribute('aria-current')") == "true"
    page.run("document.querySelector('#views li button').click()")
    assert page.run("document.querySelectorAll('#views li').length") == 0
    page.run("localStorage.setItem('toban-views', '[{\"name\": 1}, null]')")
    page.open(address + "/runs?state=FAILED")
    assert page.run("document.querySelectorAll('#views li').length") == 0
    assert page.complaints == []


def test_a_job_is_disabled_and_enabled_with_reasons(page: Page, address: str, web: Any) -> None:
    job = web.job()

    def disable(request: Any) -> Any:
        job.MergeFrom(pb.Job(disabled_by="user ada", disabled_reason=request.reason, disabled_at=web.stamp(0)))
        job.enabled = False
        return job

    web.cluster.reader.responses |= {"GetJob": job, "DisableJob": disable, "EnableJob": web.job()}
    page.open(address + "/jobs/hello")
    page.run("document.querySelector('a[href$=\"/disable\"]').click()")
    page.until(ASKED)
    assert page.run("document.activeElement.id") == "reason"
    page.run("document.getElementById('reason').value = '<b>a move</b>'")
    assert page.run("document.querySelector('label[for=until]').textContent").endswith("(Asia/Tokyo)")
    page.run("document.querySelector('.chip[data-hours]').click()")
    assert 3500 < page.run("(new Date(document.getElementById('until').value) - Date.now()) / 1000 + 60") <= 3660
    for days, day in (("1", "getDate() === new Date(Date.now() + 864e5).getDate()"), ("monday", "getDay() === 1")):
        page.run(f"document.querySelector('.chip[data-days=\"{days}\"]').click()")
        picked = "new Date(document.getElementById('until').value)"
        assert page.run(f"{picked} > Date.now() && {picked}.{day} && {picked}.getHours() === 8"), days
    until = page.run(f"{picked}.toISOString()")
    page.run("document.querySelector('form.action button:not(.chip)').click()")
    page.until(f"Boolean(document.querySelector('.message.good')) && !location.search.includes('done=') && {READY}")
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.DisableJobRequest)]
    assert request.until.ToJsonString() == until.replace(".000", "")
    assert page.run("document.querySelector('main .message').textContent") == "The job is disabled. Undo…"
    assert "by user ada" in page.run("document.querySelector('#job .advice').textContent")
    assert "<b>a move</b>" in page.run("document.querySelector('#job .advice').textContent")
    page.run("document.querySelector('main .message a').click()")
    page.until(ASKED)
    assert page.run("document.getElementById('reason').value") == "Undo: The job is disabled."
    page.run("document.getElementById('reason').value = 'it is back'")
    page.run("document.querySelector('form.action button:not(.chip)').click()")
    page.until(f"document.querySelector('.message.good')?.textContent.includes('enabled') === true && {READY}")
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.EnableJobRequest)]
    assert (request.reason, request.disabled_at) == ("it is back", job.disabled_at)
    assert page.complaints == []


def test_an_end_is_picked_in_utc_while_the_clocks_of_the_browser_change(page: Page, address: str, web: Any) -> None:
    web.cluster.reader.responses |= {"GetJob": web.job()}
    page._do("Emulation.setTimezoneOverride", timezoneId="Europe/Berlin")
    page.open(address + "/jobs/hello/disable?zone=utc")
    page.until(
        f"document.documentElement.dataset.zone === 'utc' && !document.querySelector('.chips').hidden && {READY}"
    )
    page.run("Date.now = () => Date.parse('2027-03-28T01:30:00Z')")
    days = "2027-03-29T08:00"
    for chip, end in (('hours="1"', "2027-03-28T02:30"), ('days="1"', days), ("days=monday", days)):
        page.run(f"document.querySelector('.chip[data-{chip}]').click()")
        assert page.run("document.getElementById('until').value") == end, chip
    assert page.complaints == []


def test_versions_and_days_of_a_job_are_seen(page: Page, address: str, web: Any) -> None:
    def versions(request: Any) -> Any:
        below = int(request.page.cursor or 9)
        found = [pb.JobVersion(version=one, spec_json=f'{{"priority": {one}}}') for one in (3, 2, 1) if one < below]
        return pb.ListJobVersionsResponse(versions=found[: request.page.limit])

    # The days are on the map also when midnight passes during the test.
    day = (web.worker.context.clock.wall() - timedelta(days=60)).date().isoformat()
    web.cluster.reader.responses |= {
        "ListJobVersions": versions,
        "GetJobDays": pb.JobDays(days=[pb.JobDay(day=day, succeeded=2, failed=1)]),
    }
    for width, dark in ((1280, True), (360, False)):
        page.look(width=width, dark=dark)
        page.open(address + "/jobs/hello")
        assert page.run("document.querySelectorAll('.day-map rect.mixed').length") == 1
        none, mixed = page.run(
            "['none', 'mixed'].map((one) => getComputedStyle(document.querySelector('.day-map rect.' + one)).fill)"
        )
        assert none != mixed
        page.run("document.querySelector('.day-map summary').click()")
        assert day in page.run("document.querySelector('.day-map li').innerText")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        page.run("document.querySelector('a[href$=\"/versions\"]').click()")
        page.until(f"location.pathname === '/jobs/hello/versions' && {READY}")
        page.run("document.getElementById('before').value = '1'")
        page.run("document.querySelector('form.filters button').click()")
        page.until(f"location.search.includes('before=1') && {READY}")
        lines = page.run(
            "[...document.querySelectorAll('.diff .went, .diff .came')].map((one) => one.innerText.trim())"
        )
        assert lines == ['-   "priority": 1', '+   "priority": 3']
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints == []


def test_a_limit_is_lowered_from_the_queue(page: Page, address: str, web: Any) -> None:
    web.cluster.reader.responses["SetLimit"] = pb.SetLimitResponse(limit=limit_message(limit=3, effective=3))
    for width, dark in ((1280, False), (1280, True), (360, True)):
        page.look(width=width, dark=dark)
        page.open(address + "/limits/signal?name=pool:licences")
        assert page.run("document.getElementById('level-hard').offsetWidth") < 40, "the text is beside its button"
        page.open(address + "/limits")
        page.run("document.querySelector('#limits a').click()")
        page.until(f"location.pathname === '/limits/one' && {READY}")
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        page.run("document.querySelector('a[href^=\"/limits/set\"]').click()")
        page.until(ASKED)
        page.run("document.getElementById('value').value = '7.5'")
        page.run("document.getElementById('reason').value = 'month end'")
        page.run("document.querySelector('form.action button:not(.chip)').click()")
        assert not page.run("document.getElementById('value').validity.valid"), "the browser asks for a whole number"
        page.run("document.getElementById('value').value = '3'")
        page.run("document.querySelector('form.action button:not(.chip)').click()")
        page.until(f"Boolean(document.querySelector('.message.good')) && !location.search.includes('done=') && {READY}")
        assert page.run("document.querySelector('main .message').textContent") == "The limit is set. Undo…"
    requests = [one for one in web.cluster.reader.requests if isinstance(one, pb.SetLimitRequest)]
    assert {(one.name, one.limit, one.reason) for one in requests} == {("pool:licences", 3, "month end")}
    assert page.complaints == []


def test_a_setting_is_changed_and_a_refusal_is_at_its_field(page: Page, address: str, web: Any) -> None:
    def update(request: Any) -> Any:
        if request.value_json == "9.5":
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "leader_tick_seconds stays 2: 9.5 s exceed the lease")
        return setting_message(value_json=request.value_json)

    web.cluster.reader.responses["UpdateSetting"] = update
    for width, dark in ((1280, False), (1280, True), (360, True)):
        page.look(width=width, dark=dark)
        page.open(address + "/settings")
        page.run("document.querySelector('a[href$=\"/change\"]').click()")
        page.until(ASKED)
        page.run("document.getElementById('value').value = '9.5'")
        page.run("document.getElementById('reason').value = 'fewer queries'")
        page.run("document.querySelector('form.action button:not(.chip)').click()")
        page.until(f"{READY} && document.getElementById('value-problem')?.textContent.includes('exceed the lease')")
        assert page.run("document.getElementById('value').value") == "9.5"
        assert page.run("document.documentElement.scrollWidth <= innerWidth")
        page.run("document.getElementById('value').value = '3'")
        page.run("document.querySelector('form.action button:not(.chip)').click()")
        page.until(f"location.pathname === '/settings' && {READY}")
        assert page.run("document.querySelector('main .message').textContent") == "The setting is changed."
    requests = [one for one in web.cluster.reader.requests if isinstance(one, pb.UpdateSettingRequest)]
    assert {(one.version, one.reason) for one in requests} == {(4, "fewer queries")}
    assert [one.value_json for one in requests] == ["9.5", "3"] * 3
    # The browser reports an answer with status 400 itself.
    assert [one for one in page.complaints if "400" not in one] == []


def test_a_line_of_filters_is_completed_part_by_part(page: Page, address: str) -> None:
    page.open(address + "/runs")
    offered = "[...document.getElementById('f-line').list.options].map((one) => one.value)"
    assert {"state:failed", "job:hello"} <= set(page.run(offered))
    page.run(
        "const line = document.getElementById('f-line'); line.value = 'state:failed jo'; line.dispatchEvent(new Event('input'))"
    )
    assert "state:failed job:hello" in page.run(offered)
    page.run("line.value = 'st'; line.dispatchEvent(new Event('input'))")
    assert "state:failed" in page.run(offered) and page.complaints == []
