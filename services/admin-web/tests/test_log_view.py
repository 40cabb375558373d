"""The log beyond its last lines: blocks, searches, and the page that needs no script."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import logs_pb2


def fill(web: Any, count: int, *, token: int = 0) -> None:
    web.cluster.logs.lines[token or web.token] = [web.line(n) for n in range(1, count + 1)]
    web.cluster.logs.found = None


def second_attempt(web: Any) -> int:
    second = int(web.token) + 5
    attempts = [{"token": web.token, "attempt": 1}, {"token": second, "attempt": 2}]
    web.cluster.reader.responses["GetRun"] = web.run(1, "RUNNING", token=second, attempts=attempts)
    return second


def block(web: Any, query: str) -> Any:
    answer = web.get(f"/runs/1/log/lines?{query}")
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return answer.get_json()


def numbers(found: Any) -> list[tuple[int, int, int]]:
    """(attempt, first, last) of each part."""
    return [(part["attempt"], part["lines"][0][0], part["lines"][-1][0]) for part in found["parts"]]


def test_blocks_join_into_the_whole_log(web: Any) -> None:
    fill(web, 1200)
    last = block(web, "before=end")
    assert numbers(last) == [(1, 701, 1200)] and (last["start"], last["end"]) == (False, True)
    middle = block(web, f"before={web.token}:701")
    assert numbers(middle) == [(1, 201, 700)] and (middle["start"], middle["end"]) == (False, False)
    first = block(web, f"before={web.token}:201")
    assert numbers(first) == [(1, 1, 200)] and first["start"]
    assert numbers(block(web, f"after={web.token}:200&limit=100")) == [(1, 201, 300)]
    later = block(web, f"after={web.token}:1100")
    assert numbers(later) == [(1, 1101, 1200)] and later["end"]
    around = block(web, f"around={web.token}:600&limit=200")
    assert numbers(around) == [(1, 500, 699)] and (around["start"], around["end"]) == (False, False)
    ends = block(web, f"around={web.token}:3")
    assert numbers(ends) == [(1, 1, 252)] and ends["start"]
    assert block(web, f"around={web.token}:9000")["end"]


def test_blocks_go_over_the_attempts(web: Any) -> None:
    second = second_attempt(web)
    fill(web, 30)
    fill(web, 10, token=second)
    assert numbers(block(web, f"before={second}:6&limit=20")) == [(1, 16, 30), (2, 1, 5)]
    assert numbers(block(web, f"after={web.token}:25&limit=20")) == [(1, 26, 30), (2, 1, 10)]
    start = block(web, f"before={second}:1")
    assert numbers(start) == [(1, 1, 30)] and start["start"]


def test_rows_have_colours_levels_and_markers(web: Any) -> None:
    level = web.line(3, "level=error x")
    level.level = "error"
    web.cluster.write(level, web.line(4, "\x1b[31mred\x1b[0m\x1b]8;;http://x\x07"), web.line(5, "::heartbeat::"))
    [part] = block(web, "before=end&limit=3")["parts"]
    assert [row[3:] for row in part["lines"]] == [
        ["level=error x", False, "error", False],
        ["\x1b[31mred\x1b[0m", False, "", False],
        ["::heartbeat::", False, "", True],
    ]
    assert part["token"] == str(web.token)
    assert numbers(block(web, "before=end&level=warning")) == [(1, 3, 3)]
    assert block(web, "before=end&stream=stderr")["parts"] == []


def test_a_block_is_bounded(web: Any) -> None:
    web.cluster.logs.lines[web.token] = [web.line(n, "x" * 16_000) for n in range(1, 400)]
    found = block(web, "before=end")
    assert numbers(found) == [(1, 300, 399)] and not found["start"]
    assert len(found["parts"][0]["lines"][0][3]) == 10_001
    found = block(web, f"after={web.token}:1")
    assert numbers(found) == [(1, 2, 101)] and not found["end"]


@pytest.mark.parametrize(
    "path",
    ["lines", "lines?after=x", "lines?after=1:1&before=1:1", "lines?after=1:1&limit=9999", "search", "search?find="],
)
def test_what_asks_for_nothing_is_not_found(web: Any, path: str) -> None:
    assert web.get(f"/runs/1/log/{path}").status_code == 404
    assert not web.cluster.logs.requests


def test_a_search_has_the_places_of_the_hits(web: Any) -> None:
    fill(web, 300)
    found = web.get("/runs/1/log/search?find=LINE+29").get_json()
    assert found == {
        "hits": [[str(web.token), n] for n in (29, *range(290, 300))],
        "count": "11",
        "whole": True,
        "error": "",
        "words": "LINE 29",
        "exact": False,
    }
    request = web.cluster.logs.requests[-1]
    assert (list(request.run_ids), request.grep, request.regex) == ([1], "(?i)LINE 29", True)
    assert web.get("/runs/1/log/search?find=LINE+29&case=1").get_json()["hits"] == []


def test_hits_are_counted_up_to_a_bound(web: Any) -> None:
    fill(web, 1500)
    found = web.get("/runs/1/log/search?find=line").get_json()
    assert (len(found["hits"]), found["count"], found["whole"]) == (1000, "1,000+", False)
    assert "Hits: 1,000+" in web.page("/runs/1/log?find=line")


def test_a_search_that_is_cut_goes_on(web: Any) -> None:
    def answer(seq: int, cut: str) -> Any:
        hit = logs_pb2.LogHit(run_id=1, token=web.token, line=web.line(seq))
        position = logs_pb2.SearchPosition(run_id=1, token=web.token, seq=seq)
        return logs_pb2.SearchLogResponse(hits=[hit], position=position, cut=cut)

    web.cluster.logs.found = [answer(5, "bytes")]
    found = web.get("/runs/1/log/search?find=x").get_json()
    # The second call ends where it began: the search stops.
    assert (len(found["hits"]), found["count"], found["whole"]) == (2, "2+", False)
    assert web.cluster.logs.requests[-1].after.seq == 5


def test_an_expression_that_is_none_is_told(web: Any) -> None:
    web.cluster.logs.found = [TobanError(ErrorCode.INVALID_ARGUMENT, "grep '(' cannot be searched for")]
    assert "cannot be searched" in web.get("/runs/1/log/search?find=(&regex=1").get_json()["error"]
    assert "cannot be searched" in web.page("/runs/1/log?find=(&regex=1")


def test_the_page_has_hits_with_the_lines_around_them(web: Any) -> None:
    fill(web, 900)
    text = web.page("/runs/1/log?find=line+5")
    assert "Hits: 111" in text and "1 / 6" in text
    assert re.findall(r'data-first="([0-9]+)"', text)[:5] == ["3", "4", "5", "6", "7"]
    assert len(re.findall(r'class="row stdout target"', text)) == 20
    [link] = re.findall(r'href="([^"]*)" title="[^"]*">5</a>', text)
    assert link == f"/runs/1/log?at={web.token}:5#L5" or link == f"/runs/1/log?at={web.token}%3A5#L5"
    [following] = re.findall(r'rel="next" href="([^"]*)"', text)
    assert "<mark>line 5</mark>25" in web.page(following.replace("&amp;", "&"))
    assert "<mark>line 5</mark>40" in web.page("/runs/1/log?find=line+5&page=3")
    assert "no hits" in web.page("/runs/1/log?find=nothing")


def test_the_page_marks_the_words(web: Any, subtests: pytest.Subtests) -> None:
    web.cluster.write(web.line(3, "\x1b[31mA.b\x1b[0m <a.B> axb A.b"))
    cases = {
        "find=a.b": "<mark>A.b</mark> &lt;<mark>a.B</mark>&gt; axb <mark>A.b</mark>",
        "find=A.b&case=1": "<mark>A.b</mark> &lt;a.B&gt; axb <mark>A.b</mark>",
        "find=<": "A.b <mark>&lt;</mark>a.B&gt; axb A.b",
        # Only RE2 reads an expression in bounded time.
        "find=a.b&regex=1": "A.b &lt;a.B&gt; axb A.b",
    }
    hit = logs_pb2.LogHit(run_id=1, token=web.token, line=web.line(3))
    web.cluster.logs.found = [logs_pb2.SearchLogResponse(hits=[hit])]
    for query, marked in cases.items():
        with subtests.test(query):
            assert f'<span class="text">{marked}</span>' in web.page(f"/runs/1/log?{query}")


def test_the_page_has_any_line_and_leads_to_the_others(web: Any) -> None:
    fill(web, 1000)
    text = web.page("/runs/1/log?line=600")
    assert 'id="L500"' in text and 'id="L699"' in text and 'id="L700"' not in text
    assert re.search(r'class="row stdout target" id="L600"', text)
    earlier, later = (
        re.findall(f'rel="{rel}" href="([^"]*)"', text)[0].replace("&amp;", "&") for rel in ("prev", "next")
    )
    assert 'id="L499"' in web.page(earlier) and 'id="L700"' in web.page(later)
    assert 'id="L1"' in web.page("/runs/1/log") and "no such line" in web.page("/runs/1/log?line=A7-L1")
    assert re.search(r'href="/runs/1/log\?before=[0-9]+(:|%3A)501"', web.page("/runs/1"))


def test_an_outage_leaves_the_page(web: Any) -> None:
    web.cluster.stop_archiver()
    for query in ("", "?find=x", "?line=3"):
        assert "no log-archiver answers" in web.page(f"/runs/1/log{query}")
    assert web.get("/runs/1/log/lines?before=end").status_code == 503
    assert web.worker.context.stream_slots.in_use == 0


def test_without_a_ticket_there_is_no_line(web: Any) -> None:
    web.cluster.reader.responses["GetReadTicket"] = TobanError(
        ErrorCode.PERMISSION_DENIED, "not for ada", detail={"user": "ada"}
    )
    for path in ("", "?find=x", "/lines?before=end", "/search?find=x"):
        assert web.get(f"/runs/1/log{path}").status_code == 403, path
    assert web.cluster.logs.requests == []


def test_steps_head_their_lines(web: Any) -> None:
    steps = [
        pb.RunStep(
            id="a", name="fetch <b>", number=1, state="succeeded", seq_from=2, seq_to=3, finished_at=web.stamp(1)
        ),
        pb.RunStep(id="b", name="load", number=2, state="running", seq_from=4, seq_to=4, started_at=web.stamp(1)),
    ]
    attempts = [pb.Attempt(token=web.token, attempt=1, state="RUNNING", steps=steps)]
    web.cluster.reader.responses["GetRun"] = web.run(1, "RUNNING", attempts=attempts, steps=steps)
    fill(web, 6)
    text = web.page("/runs/1")
    assert [m.start() for m in re.finditer('class="step"', text)][1:] and "fetch &lt;b&gt;" in text
    first, second = (text.index(f'id="L{n}"') for n in (2, 4))
    assert text.index('id="L1"') < text.index('class="step"') < first < text.rindex('class="step"') < second
    assert re.findall(r'<li data-token="[0-9]+" data-first="([0-9]+)" data-last="([0-9]+)"', text) == [
        ("2", "3"),
        ("4", "0"),
    ]


def test_one_step_has_no_heading(web: Any) -> None:
    step = pb.RunStep(id="a", name="only", number=1, state="running", seq_from=1, seq_to=2)
    attempts = [pb.Attempt(token=web.token, attempt=1, state="RUNNING", steps=[step])]
    web.cluster.reader.responses["GetRun"] = web.run(1, "RUNNING", attempts=attempts)
    assert 'class="step"' not in web.page("/runs/1")
