"""Keys, the palette and the themes in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page, find_browser

pytestmark = [
    pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium"),
]
READY = "document.readyState === 'complete'"
# The script has run.
LOADED = "document.querySelector('[data-open-keys]')?.hidden === false"


def press(page: Page, key: str, *, on: str = "document.body", **given: bool) -> None:
    """A key goes down at an element."""
    options = ", ".join([f"key: '{key}'", "bubbles: true", *(f"{name}: true" for name in given)])
    page.run(f"{on}.dispatchEvent(new KeyboardEvent('keydown', {{{options}}})) && 1")


def test_a_question_mark_shows_the_keys_and_letters_open_pages(page: Page, address: str) -> None:
    page._do("Page.addScriptToEvaluateOnNewDocument", source="performance.now = () => 1000")
    page.open(address + "/")
    page.until(LOADED)
    page.run("addEventListener('click', window.caught = (event) => event.preventDefault(window.left = true), true)")
    press(page, "r")
    assert page.run("window.left ?? false") is False, "a moment after the page came, and without a g before it"
    page.run("removeEventListener('click', window.caught, true)")
    press(page, "?")
    assert page.run("document.getElementById('keys').open")
    press(page, "g")
    press(page, "r")
    page.run("document.querySelector('#keys button').click()")
    assert page.run("location.pathname") == "/", "keys of an open dialog are its own"
    press(page, "g")
    press(page, "r")
    page.until(f"location.pathname === '/runs' && {READY} && {LOADED}")
    press(page, "/")
    assert page.run("document.activeElement.closest('.filter-line') !== null")
    press(page, "?", on="document.activeElement")
    assert not page.run("document.getElementById('keys').open"), "a field takes its own letters"
    assert page.complaints == []


def test_the_palette_finds_pages_runs_and_the_rest_by_name(page: Page, address: str, web: Any) -> None:
    palette, found = "document.getElementById('palette')", "[...document.querySelectorAll('#palette a')]"
    text = "document.getElementById('palette-text')"

    def type_in(value: str) -> None:
        page.run(f"{text}.value = {value!r}; {text}.dispatchEvent(new Event('input'))")

    page.open(address + "/executors")
    page.until(LOADED)
    press(page, "k", ctrlKey=True)
    links = page.run("document.querySelectorAll('nav.side a').length")
    assert page.run(f"{palette}.open && {found}.length") == links >= 8, "the pages of an administrator"
    type_in("hello")
    page.until(f"{found}.some((one) => one.pathname === '/schedules/hello-often')")
    assert page.run(f"{found}.map((one) => one.pathname)")[0] == "/jobs/hello"
    press(page, "ArrowDown", on=text)
    assert page.run(f"{found}.findIndex((one) => one.ariaSelected === 'true')") == 1
    type_in("<b>x</b>")
    page.until("document.querySelector('#palette [role=status]').textContent === 'Nothing found for “<b>x</b>”.'")
    assert page.run(f"{found}.length") == 0, "what no name has is not offered as a job"
    web.cluster.reader.responses["ListJobs"] = pb.ListJobsResponse(jobs=[web.job(name="nightly-<b>x</b>")])
    type_in("<b>X</b>")
    page.until(f"{found}.length === 3")
    assert page.run(f"{found}[0].textContent") == "Job nightly-<b>x</b>"
    assert page.run("document.querySelector('#palette [role=status]').textContent") == ""
    assert [one.name for one in web.cluster.reader.requests if isinstance(one, pb.ListJobsRequest)][-1] == "<b>X</b>"
    web.refuse("ListJobs", ErrorCode.UNAVAILABLE, "no coordinator answers")
    # The palette has dealt with an answer before the next task.
    page.run(
        "{ const plain = fetch; window.fetch = (...given) => plain(...given).finally(() =>"
        " { if (String(given[0]).endsWith('q=gone')) setTimeout(() => { window.dealt = true; }); }); }"
    )
    type_in("gone")
    page.until("window.dealt")
    assert page.run("document.querySelector('#palette [role=status]').textContent") == "", (
        "an outage says nothing of names"
    )
    type_in("#1")
    assert page.run(f"{found}[0].textContent") == "Run 1"
    press(page, "Enter", on=text)
    page.until(f"location.pathname === '/runs/1' && {READY}")
    # The text after the outage may be searched for, too, before the page is left.
    assert [one for one in page.complaints if "/find?q=" not in one] == []


def test_the_palette_finds_what_to_do_with_a_job_or_a_schedule(page: Page, address: str, web: Any) -> None:
    off = web.job(name="hello-off", enabled=False, disabled_at=web.stamp(60))
    web.cluster.reader.responses |= {
        "ListJobs": pb.ListJobsResponse(jobs=[web.job(), off]),
        "ListSchedules": pb.ListSchedulesResponse(schedules=[web.schedule(status="paused")]),
    }
    paths = "[...document.querySelectorAll('#palette a')].map((one) => one.pathname)"
    text = "document.getElementById('palette-text')"

    def type_in(value: str, *expected: str) -> None:
        page.run(f"{text}.value = {value!r}; {text}.dispatchEvent(new Event('input'))")
        page.until(f"JSON.stringify({paths}) === JSON.stringify({list(expected)})")

    page.open(address + "/")
    page.until(LOADED)
    page.run("document.querySelector('[data-open-palette]').click()")
    names = ("/jobs/hello", "/jobs/hello-off", "/schedules/hello-often")
    off_acts = ("/jobs/hello-off/run", "/jobs/hello-off/enable")
    acts = ("/jobs/hello/run", "/jobs/hello/disable", *off_acts, "/schedules/hello-often/resume")
    type_in("hello", *names, *acts)
    type_in("Disable hel", "/jobs/hello/disable")
    type_in("enable hel", "/jobs/hello-off/enable")
    press(page, "Enter", on=text)
    page.until(f"location.pathname === '/jobs/hello-off/enable' && {READY}")
    assert page.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_theme_is_chosen_and_kept(page: Page, address: str, width: int) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    for system_is_dark in (False, True):
        page.look(width=width, dark=system_is_dark)
        seen = {}
        for theme in ("dark", "light", "system"):
            page.open(address + "/jobs")
            page.run(f"document.querySelector('.themes a[href*=\"theme={theme}\"]').click()")
            current = f"document.querySelector('.themes a[aria-current]')?.search.includes('theme={theme}')"
            page.until(f"location.search === '' && {READY} && {current}")
            seen[theme] = page.run(ground)
        assert seen["dark"] != seen["light"]
        assert seen["system"] == seen["dark" if system_is_dark else "light"]
    assert page.run(f"document.documentElement.scrollWidth <= {width}")
    assert page.complaints == []
