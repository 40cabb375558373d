"""The log of a run in a real browser: search, anchors, scrolling through more than the page holds, switches, hostile texts."""

from __future__ import annotations

from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.browser import Page, find_browser

pytestmark = [
    pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium"),
]
LINES = 9000
SHOWN = "document.querySelectorAll('#log .row:not([hidden])')"
ROWS = f"{SHOWN}.length"
FIRST = f"Number({SHOWN}[0].dataset.first)"
LAST = f"Number([...{SHOWN}].at(-1).dataset.first)"
MARKED = "document.querySelector('#log .target')?.dataset.first"
IN_SIGHT = """(() => { const [row, box] = [document.querySelector('#log .target'), document.getElementById('log')].map((one) =>
    one.getBoundingClientRect()); return row.top >= box.top && row.bottom <= box.bottom; })()"""


def click(page: Page, name: str) -> None:
    page.run(f"document.getElementById('{name}').click()")


def find(page: Page, text: str) -> None:
    page.run(
        f"document.getElementById('log-find').value = {text!r}; document.querySelector('.log-search').requestSubmit()"
    )


@pytest.fixture
def long_log(web: Any) -> Any:
    """Ended an hour ago."""
    web.cluster.logs.lines[web.token] = [web.line(n) for n in range(1, LINES + 1)]
    web.cluster.logs.found = None
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(3600))
    return web


def test_a_search_goes_from_hit_to_hit(page: Page, address: str, long_log: Any) -> None:
    page.open(address + "/runs/1")
    find(page, "LINE 40")
    page.until(f"{MARKED} === '40'")
    shown = "document.getElementById('log-hits').textContent"
    assert page.run(shown) == "1 of 111" and page.run(IN_SIGHT)
    click(page, "log-next")
    page.until(f"{MARKED} === '400'")
    assert page.run(shown) == "2 of 111" and page.run(IN_SIGHT)
    for switch in ("log-wrap", "log-full", "log-times"):
        click(page, switch)
        assert page.run(IN_SIGHT), f"{switch} leaves the marked line in sight"
    page.run("localStorage.clear(); document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    click(page, "log-previous")
    page.until(f"{MARKED} === '40'")
    click(page, "log-previous")
    page.until(f"{MARKED} === '4099'")
    assert page.run(f"{ROWS} <= 2500")
    assert page.run("document.getElementById('log-all-hits').href").endswith("/runs/1/log?find=LINE+40")
    find(page, "line")
    page.until(f"{shown} === '1 of 1,000+'")
    find(page, "nothing like it")
    page.until(f"{shown} === 'no hits'")
    assert page.complaints == []


def test_a_search_marks_words_also_over_changes_of_colour(page: Page, address: str, web: Any) -> None:
    marked = """[...CSS.highlights.get('found')].map(({ startContainer, startOffset, endContainer, endOffset }) => {
        const range = document.createRange(); range.setStart(startContainer, startOffset);
        range.setEnd(endContainer, endOffset); return range.toString(); })"""
    web.cluster.logs.found = None
    web.cluster.write(web.line(3, "\x1b[31mno \x1b[1mspa\x1b[0mce left, No Space"), web.line(4, "space"))
    page.open(address + "/runs/1")
    find(page, "o space")
    page.until(f"{MARKED} === '3'")
    assert page.run(marked) == ["o space", "o Space"]
    page.run("document.querySelector('.log-search [name=case]').click()")
    find(page, "o space")
    page.until(f"{marked}.length === 1")
    find(page, "space")
    page.until(f"{marked}.length === 2")
    assert page.run(marked) == ["space", "space"]
    web.cluster.write(web.line(5, "more space"))
    page.until(f"{marked}.length === 3")
    page.run("document.querySelector('.log-search [name=regex]').click()")
    find(page, "sp.ce")
    page.until(f"{MARKED} === '4' && {marked}.length === 0")
    assert page.run("document.querySelector('#L3 .text').textContent") == "no space left, No Space"
    assert page.complaints == []


def test_an_anchor_leads_to_its_line(page: Page, address: str, long_log: Any) -> None:
    page.open(address + "/runs/1#L4321")
    page.until(f"{MARKED} === '4321'")
    assert page.run(IN_SIGHT) and page.run(f"{ROWS} <= 500")
    assert page.run("getComputedStyle(document.querySelector('.log-end')).display") == "none", "this is not the end"
    page.run("document.getElementById('log-line').value = '7000'; document.querySelector('.log-jump').requestSubmit()")
    page.until(f"{MARKED} === '7000' && location.hash === '#L7000'")
    page.run("document.querySelector('#L7003 .seq').click()")
    page.until(f"location.hash === '#L7003' && {MARKED} === '7003'")
    page.run("location.hash = '#L99999'")
    page.until("document.getElementById('log-note').textContent.includes('no such line')")
    click(page, "log-latest")
    page.until(f"{LAST} === {LINES} && document.getElementById('log-latest').hidden")
    assert page.complaints == []


def test_anchors_name_the_attempt(page: Page, address: str, web: Any) -> None:
    second = int(web.token) + 5
    attempts = [{"token": web.token, "attempt": 1}, {"token": second, "attempt": 2}]
    web.cluster.reader.responses["GetRun"] = web.run(1, "RUNNING", token=second, attempts=attempts)
    for token in (web.token, second):
        web.cluster.logs.lines[token] = [web.line(n) for n in range(1, 1200)]
    page.open(address + "/runs/1#A1-L120")
    target = "document.querySelector('#log .target')?.id"
    page.until(f"{target} === 'A1-L120'")
    page.run("location.hash = '#L120'")
    page.until(f"{target} === 'A2-L120'")
    assert page.complaints == []


def test_scrolling_moves_over_the_whole_log(page: Page, address: str, long_log: Any) -> None:
    page.open(address + "/runs/1")
    page.until(f"{ROWS} >= 500 && {LAST} === {LINES}")
    seen = 0
    for _ in range(LINES // 400):
        before = page.run(FIRST)
        if before == 1:
            break
        top = page.run("document.querySelector('#log .row').getBoundingClientRect().top + log.scrollTop")
        page.run("log.scrollTop = 0")
        page.until(f"{FIRST} < {before} && !log.ariaBusy")
        seen = max(seen, page.run(ROWS))
        row = f"document.querySelector('#log [data-first=\"{before}\"]').getBoundingClientRect().top"
        assert abs(page.run(row) - top) < 30, "what was in sight stays there"
    assert page.run(FIRST) == 1 and seen <= 2500
    for _ in range(LINES // 400):
        last = page.run(LAST)
        if last == LINES:
            break
        page.run("log.scrollTop = log.scrollHeight")
        page.until(f"{LAST} > {last} && !log.ariaBusy")
    assert page.run(LAST) == LINES and page.run(ROWS) <= 2500
    numbers = page.run("[...document.querySelectorAll('#log .row')].map((row) => Number(row.dataset.first))")
    assert numbers == list(range(numbers[0], LINES + 1)), "no line is missing or twice"
    assert page.complaints == []


def test_new_lines_wait_below_while_earlier_ones_are_shown(page: Page, address: str, web: Any) -> None:
    web.cluster.logs.lines[web.token] = [web.line(n) for n in range(1, 3001)]
    page.open(address + "/runs/1#L50")
    page.until(f"{MARKED} === '50' && document.getElementById('log-state').dataset.state === 'live'")
    web.cluster.write(web.line(3001))
    click(page, "log-follow")
    page.until(f"{LAST} === 3001")
    web.cluster.write(web.line(3002))
    page.until(f"{LAST} === 3002 && log.scrollHeight - log.scrollTop - log.clientHeight < 2")
    assert page.complaints == []


def test_switches_are_kept(page: Page, address: str, web: Any) -> None:
    error = web.line(5, "level=error broken", stream=2)
    error.level = "error"
    web.cluster.write(web.line(3, "::progress 40 half way::"), web.line(4, "::heartbeat::"), error)
    page.open(address + "/runs/1")
    page.until(f"{ROWS} === 5")
    marker = "getComputedStyle(document.querySelector('#log .marker')).display"
    assert (
        page.run(marker) == "none" and page.run("document.getElementById('log-markers').parentElement.offsetWidth") > 0
    )
    for name in ("wrap", "times", "markers"):
        click(page, f"log-{name}")
    look = f"[getComputedStyle(document.querySelector('#log .text')).whiteSpace, document.querySelector('#log .at').offsetWidth > 0, {marker}]"
    assert page.run(look) == ["pre", True, "flex"]
    assert page.run("document.querySelector('#log .at').textContent") == "2026-11-21 09:00:00", (
        "as the page shows times"
    )
    page.open(address + "/runs/1")
    page.until(f"{ROWS} === 5")
    assert page.run(look) == ["pre", True, "flex"]

    def choose_level(name: str) -> None:
        level = "document.querySelector('#log-switches [name=level]')"
        page.run(f"{level}.value = '{name}'; {level}.dispatchEvent(new Event('change', {{ bubbles: true }}))")

    choose_level("error")
    page.until(f"{ROWS} === 1 && {FIRST} === 5")
    choose_level("")
    page.until(f"{ROWS} === 5")
    click(page, "log-stdout")
    page.until(f"{ROWS} === 1")
    web.cluster.write(web.line(6), web.line(7, stream=2))
    page.until(f"{ROWS} === 2 && {LAST} === 7")
    page.open(address + "/runs/1")
    page.until(f"{ROWS} === 2")
    click(page, "log-full")
    assert page.run("document.getElementById('log-title').parentElement.parentElement.getBoundingClientRect().top") == 0
    page.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert page.run("!document.getElementById('output').classList.contains('full')")
    page.run("localStorage.clear()")
    assert page.complaints == []


def test_steps_close_and_open(page: Page, address: str, long_log: Any) -> None:
    web = long_log
    steps = [
        pb.RunStep(id="a", name="fetch", number=1, state="succeeded", seq_from=2, seq_to=8700),
        pb.RunStep(id="b", name="load", number=2, state="failed", seq_from=8701, seq_to=LINES),
    ]
    attempts = [pb.Attempt(token=web.token, attempt=1, state="FAILED", steps=steps)]
    web.cluster.reader.responses["GetRun"] = web.run(1, "FAILED", finished_at=web.stamp(3600), attempts=attempts)
    page.open(address + "/runs/1")
    heads = (
        "[...document.querySelectorAll('#log .step')].map((one) => one.textContent.split(' ')[0] + one.ariaExpanded)"
    )
    page.until(f"JSON.stringify({heads}) === JSON.stringify(['fetchtrue', 'loadtrue'])")
    page.run("document.querySelector('#log .step').click()")
    # Line 1 is before the step, whose 8,699 lines are skipped.
    page.run("log.scrollTop = 0")
    page.until(f"{FIRST} === 1 && {ROWS} === 301")
    assert page.run(heads) == ["fetchfalse", "loadtrue"]
    page.run("document.querySelector('#log .step').click()")
    page.until("document.querySelector('#log #L2') !== null")
    page.run("location.hash = '#L8800'")
    page.until(f"{MARKED} === '8800'")
    assert page.complaints == []


def test_a_closed_step_hides_no_line_of_the_next_one(page: Page, address: str, web: Any) -> None:
    """The page learns of the next step after its first lines have come."""
    fetch = {"id": "a", "name": "fetch", "number": 1, "seq_from": 1}
    waiting = pb.RunStep(id="b", name="load", number=2, state="pending")

    def running(*steps: pb.RunStep) -> pb.Run:
        attempts = [pb.Attempt(token=web.token, attempt=1, state="RUNNING", steps=steps)]
        return web.run(1, "RUNNING", attempts=attempts)  # type: ignore[no-any-return]

    web.cluster.reader.responses["GetRun"] = running(pb.RunStep(state="running", seq_to=2, **fetch), waiting)
    page.open(address + "/runs/1")
    page.until("document.getElementById('log-state').dataset.state === 'live'")
    page.run("document.querySelector('#log .step').click()")
    page.until(f"{ROWS} === 0")
    web.cluster.write(web.line(3), web.line(4), web.line(5))
    ended = pb.RunStep(state="succeeded", seq_to=3, finished_at=web.stamp(1), **fetch)
    load = pb.RunStep(id="b", name="load", number=2, state="running", seq_from=4, seq_to=5)
    web.cluster.reader.responses["GetRun"] = running(ended, load)
    page.until(f"{ROWS} === 2 && {FIRST} === 4")
    web.cluster.write(web.line(6))
    page.until(f"{ROWS} === 3 && {LAST} === 6")
    assert page.complaints == []


def test_headings_name_attempts_and_dispatches_where_they_differ(page: Page, address: str, web: Any) -> None:
    def running(attempt: int) -> pb.Run:
        attempts = [
            pb.Attempt(token=web.token - 1, attempt=1, state="LOST"),
            pb.Attempt(token=web.token, attempt=attempt, state="RUNNING"),
        ]
        return web.run(1, "RUNNING", attempts=attempts)  # type: ignore[no-any-return]

    web.cluster.logs.lines[web.token - 1] = [web.line(1)]
    web.cluster.reader.responses["GetRun"] = running(2)
    page.open(address + "/runs/1")
    heads = "[...document.querySelectorAll('#log .attempt')].map((one) => one.textContent).join()"
    page.until(f"{heads} === 'Attempt 1,Attempt 2' && document.getElementById('log-state').dataset.state === 'live'")
    web.cluster.reader.responses["GetRun"] = running(1)
    page.until(f"{heads} === 'Dispatch 1,Dispatch 2'")
    assert page.complaints == []


HOSTILE = (
    "<img src=x onerror=\"document.title='x'\"> \x1b[31m<script>document.title='x'</script>\x1b[0m"
    "\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07 \u202etxt.exe\u2066 \x1b[2J\x1b[1;1H"
    '\x1b[38;2;1;2;3"onmouseover=x m\x1b[38;2;250;0;0mtrue\x1b[1;4;41mbold'
)


def test_hostile_texts_are_texts(page: Page, address: str, web: Any) -> None:
    hostile = web.line(3, HOSTILE)
    web.cluster.write(hostile)
    page.open(address + "/runs/1")
    page.until(f"{ROWS} === 3 && document.getElementById('log-state').dataset.state === 'live'")
    web.cluster.write(web.line(4, HOSTILE), *(web.line(n) for n in range(5, 900)))
    page.until(f"{LAST} === 899")
    tags = "[...new Set([...document.querySelectorAll('#log .text *')].map((one) => one.tagName))]"
    for number in (3, 4):
        text = f"document.querySelector('#L{number} .text')"
        assert page.run(f"{text}.textContent").startswith("<img src=x onerror=\"document.title='x'\"> <script>document")
        assert "link txt.exe " in page.run(f"{text}.textContent")
        assert page.run(f"[...{text}.textContent].every((one) => one >= ' ' && !'\\u202e\\u2066\\u009b'.includes(one))")
        assert page.run(f"{text}.querySelector('.ansi-red-fg').textContent") == "<script>document.title='x'</script>"
        assert page.run(f"getComputedStyle({text}.querySelector('.ansi-bold')).fontWeight") == "700"
    # The same from a block.
    page.run("location.hash = '#L1'")
    click(page, "log-system")
    page.until("document.querySelector('#L899') !== null && !log.ariaBusy")
    assert page.run(tags) in (["SPAN"], [])
    assert page.run("document.querySelectorAll('#log [style], #log [onerror], #log img, #log script').length") == 0
    assert "x" not in page.run("document.title")
    page.run("localStorage.clear()")
    assert page.complaints == []
