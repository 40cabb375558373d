"""A page that hears of changes: only what differs is replaced, and the rest stays as the person left it."""

from __future__ import annotations

from typing import Any

import pytest

from toban_admin_web.ports.changes import Changes
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page


@pytest.fixture
def board(web: Any) -> Any:
    web.worker.context.changes.publish(Changes())
    return web.worker.context.changes


def test_a_change_replaces_the_rows_that_differ(page: Page, address: str, web: Any, board: Any) -> None:
    runs = [web.run(8, "RUNNING"), web.run(7, "SUCCEEDED")]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs)
    page.open(f"{address}/runs")
    page.until("document.querySelector('#live').classList.contains('on')")
    page.run("document.querySelectorAll('tbody tr').forEach((row) => { row.kept = true })")
    page.run("document.querySelector('input[name=run][value=\"7\"]').click()")
    page.run("document.getSelection().selectAllChildren(document.querySelector('a[href=\"/runs/7\"]'))")
    runs = [web.run(9, "PENDING"), web.run(8, "SUCCEEDED"), web.run(7, "SUCCEEDED")]
    web.cluster.reader.responses["ListRuns"] = pb.ListRunsResponse(runs=runs)
    board.publish(Changes(frozenset({"runs"}), frozenset({8, 9})))
    page.until("document.querySelectorAll('tbody tr').length === 3")
    rows = page.run(
        "[...document.querySelectorAll('tbody tr')].map((row) => [Boolean(row.kept), row.classList.contains('changed')])"
    )
    assert rows == [[False, True], [True, True], [True, False]], "new, changed, as it was"
    assert page.run("document.getSelection().toString()") == "7", "what was selected still is"
    assert page.run("[...document.querySelectorAll('input[name=run]:checked')].map((one) => one.value)") == ["7"]
    assert page.complaints == []


def test_a_page_that_hears_nothing_asks_by_itself(page: Page, address: str, web: Any) -> None:
    page.open(f"{address}/executors")
    page.until("!document.querySelector('#live').hidden")
    assert not page.run("document.querySelector('#live').classList.contains('on')")
    seen = len(web.cluster.reader.requests)
    page.until("performance.getEntriesByType('resource').filter((one) => one.name.includes('part=1')).length > 1")
    assert len(web.cluster.reader.requests) > seen and page.complaints == []


def test_an_opened_fold_and_the_focus_stay(page: Page, address: str, web: Any, board: Any) -> None:
    page.open(f"{address}/")
    page.until("document.querySelector('#live').classList.contains('on')")
    page.run("document.body.append(Object.assign(document.createElement('p'), {id: 'mark'}))")
    page.run("document.querySelector('#dashboard a').focus()")
    href = page.run("document.activeElement.getAttribute('href')")
    asked = "performance.getEntriesByType('resource').filter((one) => one.name.includes('part=1')).length"
    before = page.run(asked)
    board.publish(Changes(frozenset({"cluster"})))
    page.until(f"{asked} > {before}")
    assert page.run("document.activeElement.getAttribute('href')") == href
