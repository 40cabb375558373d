"""Actions in a real browser: forms that the policy lets through, changes that go on by themselves, saved views."""

from __future__ import annotations

from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page, find_browser

pytestmark = [
    pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium"),
    pytest.mark.timeout(180),
]
READY = "document.readyState === 'complete'"


def test_a_run_is_killed_with_a_reason(page: Page, address: str, web: Any) -> None:
    page.open(address + "/runs/1")
    page.run("document.querySelector('a[href$=\"/kill\"]').click()")
    page.until(f"location.pathname === '/runs/1/kill' && {READY}")
    page.run("document.querySelector('form.action button').click()")
    assert page.run("location.pathname") == "/runs/1/kill", "the browser asks for the reason"
    page.run("document.getElementById('reason').value = 'stuck'")
    page.run("document.querySelector('form.action button').click()")
    page.until(f"location.pathname === '/runs/1' && {READY}")
    assert page.run("document.querySelector('main .message').textContent") == "The kill was requested."
    [request] = [one for one in web.cluster.reader.requests if isinstance(one, pb.CancelRunRequest)]
    assert (request.mode, request.reason) == ("kill", "stuck")
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
    monkeypatch.setattr("toban_admin_web.views.bulk_actions.PART_SECONDS", -1)
    page.run("document.getElementById('reason').value = 'holiday'")
    page.run("document.querySelector('form.action button').click()")
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
