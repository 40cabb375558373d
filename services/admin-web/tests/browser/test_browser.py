"""The pages in a real browser: no policy violation, working scripts, no overflow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page, find_browser

pytestmark = [
    pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium"),
]
PASSWORD = "correct horse battery"
PAGES = [
    "/",
    "/account",
    "/runs",
    "/runs/1",
    "/runs/1/log?find=line",
    "/jobs",
    "/jobs/hello",
    "/schedules",
    "/schedules/hello-often",
    "/executors",
    "/cluster",
    "/runs/timeline",
    "/load",
    "/load/month?month=2027-03",
    "/load/days/2027-03-28?name=hello",
    "/archive",
    "/archive/verify?day=2026-11-20",
    "/load/spread?minute=2026-11-29T18:00",
    "/api/docs",
    "/audit",
    "/audit/verify?check=1",
    "/settings",
    "/settings/leader_tick_seconds/change",
    "/limits",
    "/limits/one?name=pool:licences",
    "/limits/signal?name=pool:licences",
    "/runs/1/kill",
    "/runs/1/rerun",
    "/runs/cancel",
    "/jobs/hello/run",
    "/jobs/hello/delete",
    "/jobs/hello/disable",
    "/jobs/hello/versions",
    "/schedules/hello-often/pause",
    "/executors/3/detach",
    "/cluster/demote",
    "/events",
    "/events/emit",
    "/triggers",
    "/triggers/invoice-when-paid",
    "/webhooks",
    "/webhooks/pager",
    "/new/webhook",
    "/webhooks/pager/test",
    "/incoming",
    "/incoming/repo",
    "/new/hook",
    "/incoming/repo/test",
    "/incoming/repo/rotate",
]


@pytest.mark.parametrize(
    ("width", "language"), [(360, "ja"), (1100, "en"), pytest.param(1600, "en", marks=pytest.mark.long)]
)
def test_pages_fit_and_violate_no_policy(page: Page, address: str, width: int, language: str) -> None:
    for path in PAGES:
        page.look(width=width, height=800, language=language)
        page.open(address + path)
        assert page.run(f"document.documentElement.scrollWidth <= {width}"), f"{path} is wider than {width}"
        assert page.run("document.querySelectorAll('h1').length") == 1
    assert page.complaints == []


@pytest.mark.parametrize(("width", "language"), [(360, "ja"), (1280, "zh-Hant")])
def test_the_own_account_fits(page: Page, address: str, web: Any, width: int, language: str) -> None:
    agent = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36"
    times = {"created_at": web.stamp(900), "last_used_at": web.stamp(5), "ends_at": web.stamp(-900)}
    sessions = [
        pb.UserSession(id=number, address="2001:db8:1234:5678::/64", user_agent=agent, current=number == 1, **times)
        for number in (1, 2)
    ]
    selector = pb.AccessSelector(job="deploy-of-the-whole-site", labels={"team": "operations"}, scope="account")
    token = pb.ApiToken(
        id=3, name="continuous integration", role="operator", selector=selector, ends_at=web.stamp(-900)
    )
    web.cluster.accounts.own |= {
        "ListOwnSessions": pb.ListOwnSessionsResponse(sessions=sessions),
        "ListOwnTokens": pb.ListTokensResponse(tokens=[token]),
        "CreateOwnToken": pb.CreateTokenResponse(id=4, secret="toban_pat_" + "5e" * 32),
    }
    page.look(width=width, language=language)
    page.open(address + "/account")
    assert page.run(f"document.documentElement.scrollWidth <= {width}")
    page.run("document.getElementById('token-name').value = 'ci'")
    page.run("document.getElementById('token-name').form.querySelector('button').click()")
    page.until("document.querySelector('main pre')?.textContent.startsWith('toban_pat_')")
    assert page.run(f"document.documentElement.scrollWidth <= {width}")
    assert page.complaints == []


def test_times_are_shown_in_the_zone_of_the_viewer(page: Page, address: str) -> None:
    page.open(address + "/schedules")
    assert page.until("[...document.querySelectorAll('td time')].every((one) => one.title.endsWith(' UTC'))")
    shown, utc = page.run("[document.querySelector('td time').textContent, document.querySelector('td time').title]")
    assert "UTC" not in shown and shown != utc.removesuffix(" UTC"), "the browser of the test lives in Tokyo"
    assert "Asia/Tokyo" in page.run("document.querySelector('footer').textContent")


def test_times_in_forms_are_those_of_the_viewer_and_sent_in_utc(page: Page, address: str, web: Any) -> None:
    started = pb.StartRunsResponse(runs=[pb.StartedRun(run_id=12, created=True)])
    web.cluster.reader.responses["StartRuns"] = started
    page.open(address + "/runs?since=2026-11-21T00:30")
    page.until("document.getElementById('f-since').value === '2026-11-21T09:30'")
    assert "(Asia/Tokyo)" in page.run("document.getElementById('f-since').labels[0].textContent")
    page.until("document.querySelector('.chips time').textContent === '2026-11-21 09:30:00'")
    page.run("document.getElementById('f-until').value = '2026-11-21T10:00'")
    page.run("document.getElementById('f-since').form.requestSubmit()")
    page.until("location.search.includes('until=2026-11-21T01%3A00')")
    assert page.run("new URLSearchParams(location.search).get('since')") == "2026-11-21T00:30"
    page.open(address + "/jobs/hello/run")
    page.until("document.getElementById('at').labels[0].textContent.includes('(Asia/Tokyo)')")
    page.run("document.getElementById('at').value = '2030-01-01T09:00'")
    page.run("document.getElementById('at').form.requestSubmit()")
    page.until("location.pathname !== '/jobs/hello/run'")
    [asked] = [one for one in web.cluster.reader.requests if isinstance(one, pb.StartRunsRequest)]
    assert asked.runs[0].scheduled_for.ToDatetime().isoformat() == "2030-01-01T00:00:00"


def test_times_that_a_browser_restores_are_not_shifted_again(page: Page, address: str) -> None:
    """Some give inputs their values back on a reload, before the script runs; these are of the viewer's zone already."""
    page.open(address + "/runs?since=2026-11-21T00:30")
    page.until("document.getElementById('f-since').value === '2026-11-21T09:30'")
    page.run("document.getElementById('f-until').value = '2026-11-21T10:00'")
    times = "new URL('times.js', document.querySelector('script[src*=\"/site.js\"]').src).href"
    page.run(f"import({times}).then((it) => {{ it.showInputs(document); window.again = true; }}) && null")
    page.until("window.again")
    found = page.run("['f-since', 'f-until'].map((id) => document.getElementById(id).value)")
    assert found == ["2026-11-21T09:30", "2026-11-21T10:00"]


def test_long_names_leave_the_other_columns_on_the_page(page: Page, address: str, web: Any) -> None:
    long = "a-job-" + "x" * 122
    responses = web.cluster.reader.responses
    responses["ListSchedules"].schedules[0].MergeFrom(pb.Schedule(name=long, job=long))
    responses["ListJobs"].jobs[0].name = long
    responses["ListRuns"].runs[0].MergeFrom(pb.Run(job=long, schedule=long, executor=long))
    for path in ("/schedules", "/jobs", "/runs"):
        page.look(width=1280)
        page.open(address + path)
        beyond = "[...document.querySelectorAll('.scroll')].some((one) => one.scrollWidth > one.clientWidth)"
        assert not page.run(beyond), f"a column of {path} is out of sight"


def test_the_zone_of_a_schedule_is_shown_where_it_is_not_the_viewers(page: Page, address: str, web: Any) -> None:
    shown = "getComputedStyle(document.querySelector('td.in-zone')).display !== 'none'"
    page.open(address + "/schedules/hello-often")
    assert page.run(shown)
    [slot] = web.cluster.reader.responses["NextSlots"].slots
    slot.local = slot.at.ToDatetime(ZoneInfo("Asia/Tokyo")).isoformat(timespec="seconds")
    page.open(address + "/schedules/hello-often")
    assert page.until(f"!({shown})"), "the browser of the test lives in Tokyo"


def test_dark_is_dark(page: Page, address: str) -> None:
    brightness = []
    for dark in (False, True):
        page.look(dark=dark)
        page.open(address + "/")
        colour = page.run("getComputedStyle(document.documentElement).backgroundColor")
        brightness.append(sum(int(part) for part in colour.strip("rgb()").split(",")))
    assert brightness[0] > 600 and brightness[1] < 150


def test_a_page_refreshes_and_reports_when_it_cannot(page: Page, address: str, web: Any) -> None:
    page.open(address + "/runs/1")
    assert page.run("document.getElementById('stale').hidden")
    web.cluster.reader.responses["GetRun"] = web.run(progress_json='{"percentage": 40, "summary": "half way"}')
    assert page.until("document.getElementById('progress')?.value === 40")
    web.cluster.stop_coordinator()
    assert page.until("!document.getElementById('stale').hidden")
    assert "No response" in page.run("document.getElementById('stale').textContent")


def test_a_live_log_to_its_end(page: Page, address: str, web: Any) -> None:
    page.look(height=700)
    page.open(address + "/runs/1")
    page.until("document.getElementById('log-state').dataset.state === 'live'")
    rows = "document.querySelectorAll('#log .row').length"
    web.cluster.write(
        *(web.line(n) for n in range(3, 200)), web.line(200, "<script>document.title='x'</script>", stream=2)
    )
    page.until(f"{rows} === 200")
    assert (
        page.run("document.querySelector('#log .row:last-child .text').textContent")
        == "<script>document.title='x'</script>"
    )
    assert page.run("document.querySelector('#log .row:last-child .stream').textContent") == "err"

    at_end = "log.scrollHeight - log.scrollTop - log.clientHeight < 2"
    page.until(at_end)
    page.run("log.scrollTop = 0")
    page.until("document.getElementById('log-follow').getAttribute('aria-pressed') === 'false'")
    web.cluster.write(web.line(201, "part one, ", partial=True), web.line(202, "part two"))
    page.until(f"{rows} === 201")
    assert page.run("log.scrollTop") == 0, "it stays where the reader has scrolled to"
    page.run("document.getElementById('log-follow').click()")
    page.until(at_end)

    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(0))
    web.cluster.write(sealed=True)
    page.until("document.getElementById('log-state').dataset.state === 'ended'")
    text = page.run("log.textContent")
    assert "part one, part two" in text and text.rstrip().endswith("end of the output")
    assert page.run(rows) == 201, "each line once"
    assert [one for one in page.complaints if "503" not in one] == []


def test_a_live_log_cuts_long_lines_and_counts_dropped_ones(page: Page, address: str, web: Any) -> None:
    page.open(address + "/runs/1")
    page.until("document.getElementById('log-state').dataset.state === 'live'")
    assert page.run("document.getElementById('log-dropped').hidden")
    web.cluster.write(web.line(3, "a" * 9_000, partial=True), web.line(4, "b" * 9_000))
    link = "document.querySelector('#log .whole')"
    page.until(f"{link} && {link}.href.includes('from={web.token}%3A3') && {link}.href.includes('to={web.token}%3A4')")
    assert page.run(f"{link}.parentElement.firstChild.textContent.length") <= 10_000
    marker = web.line(1_004, "… 1,000 lines, 1 MiB left out", stream=3)
    marker.dropped_lines = 1_000
    web.cluster.write(marker, sealed=True)
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(0))
    page.until("document.getElementById('log-state').dataset.state === 'dropped'")
    assert "1,000" in page.run("document.getElementById('log-dropped').innerText")


def test_a_live_log_resumes_after_a_lost_connection(page: Page, address: str, web: Any) -> None:
    page.open(address + "/runs/1")
    page.until("document.getElementById('log-state').dataset.state === 'live'")
    slots = web.worker.context.stream_slots
    held = [slots.acquire(f"person {n}", stream=False) for n in range(slots.size)]
    # Every stream ends, and new ones are refused for a while.
    web.worker.context.stopping.set()
    page.until("document.getElementById('log-state').dataset.state === 'lost'")
    assert "archiver" not in page.run("document.getElementById('log-state').textContent"), "that is not what is known"
    web.worker.context.stopping.clear()
    web.cluster.write(web.line(3))
    for release in filter(None, held):
        release()
    page.until("document.querySelectorAll('#log .row').length === 3")


def test_from_the_one_time_link_to_signing_out(new_page: Callable[[], Page], address: str, web: Any) -> None:
    """The headers, cookies and the policy of a real browser: its forms are taken, and the link's secret is never in an address."""
    web.cluster.accounts.administrator = False
    page = new_page()
    page.open(f"{address}/first")
    # Only the part behind the # changes: the browser loads nothing.
    page.run(f"location.hash = '{'11' * 32}'")
    page.until("document.getElementById('link').value.length === 64")
    assert page.run("location.hash") == ""
    fill = "document.getElementById('{}').value = '{}'"
    for name, value in (("user", "ada"), ("password", PASSWORD), ("again", PASSWORD)):
        page.run(fill.format(name, value))
    page.run("document.querySelector('main form button').click()")
    page.until("location.pathname === '/' && document.readyState === 'complete'")
    assert "ada" in page.run("document.querySelector('header').textContent") and page.run("document.cookie") == ""
    page.open(f"{address}/account")
    page.run("document.querySelector('main form button').click()")
    page.until("location.pathname === '/sign-in' && document.readyState === 'complete'")
    page.run(fill.format("user", "ada"))
    page.run(fill.format("password", PASSWORD))
    page.run("document.querySelector('main form button').click()")
    page.until("location.pathname === '/' && document.readyState === 'complete'")
    assert page.complaints == []


def test_the_page_about_the_api_sends_requests(page: Page, address: str, web: Any) -> None:
    page.look(width=1280, height=900, language="en")
    page.open(f"{address}/api/docs#get_jobs_name")
    assert page.run("document.querySelector('#get_jobs_name').open")
    send = "document.querySelector('#{0} button').click()"
    title = "document.querySelector('#{0} .api-answer strong').textContent"
    page.run("document.querySelector('#get_jobs_name-name').value = 'hello'")
    page.run(send.format("get_jobs_name"))
    page.until(title.format("get_jobs_name") + ".startsWith('200')")
    # The status is shown first, then the text as it arrives, and at its end with indentation.
    page.until("document.querySelector('#get_jobs_name pre').textContent.includes('\"name\": \"hello\"')")
    # A request that changes something carries the token of the session; a token that is typed in counts before it.
    page.run(send.format("post_account_password"))
    page.until(title.format("post_account_password") + ".startsWith('200')")
    assert [asked[:2] for asked in web.cluster.accounts.asked] == [("ChangeOwnPassword", "ada")]
    assert page.complaints == []
    page.run("document.querySelector('#token').value = 'toban_pat_" + "0" * 32 + "'")
    page.run(send.format("get_session"))
    page.until(title.format("get_session") + ".startsWith('401')")


def test_targets_are_wide_enough_for_a_finger_and_buttons_stay_on_a_line(page: Page, address: str, web: Any) -> None:
    page.look(width=1400, language="ja")
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=[web.run(7), web.run(8)])
    page.open(address + "/jobs/hello")
    cells = "[...document.querySelectorAll('.strip a')].map((one) => one.getBoundingClientRect())"
    assert page.run(f"{cells}.length === 2 && {cells}.every((one) => one.width >= 24 && one.height >= 24)")
    page.open(address + "/settings")
    assert page.run("document.querySelector('td .button').getBoundingClientRect().height < 45"), "it is one line"


def test_the_grid_of_the_timeline_is_in_the_zone_of_the_viewer_and_keys_reach_it(
    page: Page, address: str, web: Any
) -> None:
    at = web.stamp(at=datetime(2026, 11, 20, 8, 30, tzinfo=UTC))
    runs = [web.run(7, "FAILED", started_at=at, finished_at=at)]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs)
    page.open(address + "/runs/timeline?since=2026-11-20T08:00&until=2026-11-20T09:00")
    page.until("document.querySelector('.axis text')?.textContent === '17:00'")
    shown = page.run("[...document.querySelectorAll('.axis text')].map((one) => one.textContent)")
    assert shown == [f"17:{minute}0" for minute in range(6)], "the browser of the test lives in Tokyo"
    page.run("document.querySelectorAll('.axis a')[1].focus()")
    assert page.run("document.activeElement.textContent") == "Show only 08:10–08:20 UTC17:10", "what is read is in it"
    page.run("document.activeElement.dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    page.until("location.search.includes('since=2026-11-20T08:10:00')")
    assert page.complaints == []
