"""The frame of every page in a real browser: side, bar, menus, time zone, and the page of all components."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flask import render_template

from toban_admin_web.decide.status_styles import STATE_GROUPS
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page, find_browser

pytestmark = [
    pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium"),
]
READY = "document.readyState === 'complete'"
SHOWN = "((one) => one !== null && one.getClientRects().length > 0)(document.querySelector('{}'))"


@pytest.mark.parametrize("width", [390, 1000, 1440])
def test_the_pages_are_at_the_side_or_in_a_menu(page: Page, address: str, width: int) -> None:
    page.look(width=width)
    page.open(address + "/jobs")
    wide = width > 1088
    assert page.run(SHOWN.format("nav.side")) is wide and page.run(SHOWN.format(".menu.pages")) is not wide
    assert page.run("document.querySelector('nav.side [aria-current]').textContent.trim()") == "Jobs"
    if not wide:
        page.run("document.querySelector('.menu.pages summary').click()")
        page.until(SHOWN.format(".menu.pages .panel a"))
        assert page.run(f"document.documentElement.scrollWidth <= {width}")
        page.run("document.querySelector('.menu.user summary').click()")
        page.until("document.querySelectorAll('details.menu[open]').length === 1")
        assert page.run("document.querySelector('.user .panel').getBoundingClientRect().left >= 0")
        page.run("document.querySelector('h1').click()")
        page.until("document.querySelectorAll('details.menu[open]').length === 0")
        page.run("document.querySelector('.menu.pages .panel a[href^=\"/runs\"]').click()")
        page.until(f"location.pathname === '/runs' && {READY}")
    assert page.complaints == []


def test_icons_are_drawn(page: Page, address: str) -> None:
    page.open(address + "/runs")
    boxes = "[...document.querySelectorAll('svg.icon use')].filter((one) => one.getClientRects().length)"
    page.until(f"{boxes}.length > 10 && {boxes}.every((one) => one.getBBox().width > 0)")
    assert page.complaints == []


def test_the_field_in_the_bar_opens_the_palette(page: Page, address: str) -> None:
    page.open(address + "/")
    page.until("document.querySelector('[data-open-palette]')?.hidden === false")
    page.run("document.querySelector('[data-open-palette]').click()")
    assert page.run("document.getElementById('palette').open")


def test_a_zone_is_chosen_and_kept_for_times_and_fields(page: Page, address: str) -> None:
    time = "document.querySelector('.chips time')"
    page.open(address + "/runs?since=2026-11-21T00:30")
    page.until("document.getElementById('f-since').value === '2026-11-21T09:30'")
    page.until(f"{time}.title.endsWith(' UTC')")
    page.run("document.querySelector('.zones a[href*=\"zone=utc\"]').click()")
    page.until(f"{READY} && document.documentElement.dataset.zone === 'utc' && {time}.title !== ''")
    assert page.run(f"{time}.textContent").endswith(" UTC") and not page.run(f"{time}.title").endswith(" UTC")
    assert page.run("document.getElementById('f-since').value") == "2026-11-21T00:30"
    assert "(UTC)" in page.run("document.getElementById('f-since').labels[0].textContent")
    assert "UTC" in page.run("document.querySelector('footer').textContent")
    page.run("document.querySelector('.zones a[href*=\"zone=local\"]').click()")
    page.until(f"{READY} && document.documentElement.dataset.zone === undefined && {time}.title.endsWith(' UTC')")
    assert page.complaints == []


def test_signing_out_from_the_menu_takes_one_click(page: Page, address: str, web: Any) -> None:
    page.open(address + "/jobs")
    page.until("document.querySelector('.zones').hidden === false")
    page.run("document.querySelector('[data-sign-out]').click()")
    page.until(f"location.pathname === '/sign-in' && {READY}")
    assert page.complaints == []


def test_the_pill_follows_the_cluster(page: Page, address: str, web: Any) -> None:
    page.open(address + "/jobs")
    assert "term 1" in page.run("document.querySelector('.leader-pill').innerText")
    page.open(address + "/runs/1")
    web.cluster.stop_coordinator()
    page.until("document.querySelector('#leader-pill').hasAttribute('data-away')")
    assert page.run("document.querySelector('.leader-pill').innerText").strip() == "no answer"


def test_marks_of_folds_and_words_of_buttons_stay_on_a_line(page: Page, address: str, web: Any) -> None:
    line = "document.querySelector('td summary').getBoundingClientRect().height < 30"
    for width in (360, 390, 1400):
        page.look(width=width, language="ja")
        page.open(address + "/executors")
        assert page.run(line), f"the mark of a fold is above its word at {width}"
        page.open(address + "/settings")
        assert page.run("document.querySelector('td .button').getBoundingClientRect().height < 40")


def test_the_address_of_a_hook_is_copied_whole(page: Page, address: str) -> None:
    button = "document.querySelector('[data-copy]')"
    page.open(address + "/incoming/repo?lang=en")
    page.run("navigator.clipboard.writeText = async (text) => { window.copied = String(text); }")
    page.run(f"{button}.click()")
    page.until(f"{button}.textContent === 'Copied'")
    assert page.run("window.copied") == f"{address}/hooks/repo"
    assert page.run("getSelection().toString()") == "/hooks/repo", "where the clipboard is closed it is copied by hand"
    assert page.complaints == []


def test_on_a_phone_the_list_of_runs_has_why_one_failed(page: Page, address: str, web: Any) -> None:
    runs = [
        web.run(7, "FAILED", error_summary="no space left on " + "device " * 20),
        web.run(8, "SUCCEEDED", last_line="ok"),
    ]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs)
    page.look(width=390)
    page.open(address + "/runs")
    shown = page.run(
        "[...document.querySelectorAll('td.line')].filter((one) => one.getClientRects().length).map((one) => one.innerText)"
    )
    assert [one[:8] for one in shown] == ["no space"]
    box = "document.querySelector('{}').getBoundingClientRect()"
    error, small = box.format("td.line"), box.format("td.small")
    assert page.run(f"{box.format('td.job')}.bottom <= {error}.top && {error}.bottom <= {small}.top")
    assert page.run(f"{error}.height < 30 && document.documentElement.scrollWidth <= 390")


@pytest.mark.parametrize("dark", [False, True])
def test_every_component_is_shown_without_complaint(page: Page, address: str, web: Any, dark: bool) -> None:
    states = sorted({state for group in STATE_GROUPS.values() for state in group})
    app = web.worker.app
    # Only here: production has no such page.
    app.jinja_loader.searchpath.append(str(Path(__file__).parent))
    app.add_url_rule("/styleguide", "styleguide", lambda: render_template("styleguide.html", states=states))
    for width in (390, 1280):
        page.look(width=width, dark=dark)
        page.open(address + "/styleguide")
        assert page.run("document.querySelectorAll('.badge').length") > len(states)
        assert page.run(f"document.documentElement.scrollWidth <= {width}")
    assert page.complaints == []
