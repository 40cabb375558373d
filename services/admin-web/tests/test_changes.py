"""The changes of the cluster for open pages: one subscription for all, none without a page, and what a page hears."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_admin_web.decide.live import parse_since, parse_topics, topics_of
from toban_admin_web.loops import changes as loop
from toban_admin_web.loops.changes import ChangeWatcher
from toban_admin_web.ports.changes import Changes, News
from toban_admin_web.ports.people import SignedIn
from toban_admin_web.views.live_pages import PAGES_OF_A_PERSON, LivePages
from toban_domain.access import Effect, Role, Rule, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import SystemClock
from toban_testing.waiting import wait_for

WAIT = 20.0
RUNS = Changes(frozenset({"runs"}), frozenset({7}))
NEVER = threading.Event()
NOW = SystemClock().wall()


class Source:
    """Gives what the test puts in; an exception breaks the stream."""

    def __init__(self) -> None:
        self.given: queue.Queue[Changes | TobanError] = queue.Queue()
        self.streams: queue.Queue[int] = queue.Queue()

    def watch(self, *, seconds: float) -> Iterator[Changes]:
        self.streams.put(1)
        while True:
            one = self.given.get(timeout=WAIT)
            if isinstance(one, TobanError):
                raise one
            yield one


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def watcher(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChangeWatcher]:
    monkeypatch.setattr(loop, "RETRY_SECONDS", 0.01)
    made = ChangeWatcher(source=source, clock=SystemClock())
    made.start()
    yield made
    made.stop()
    source.given.put(TobanError(ErrorCode.UNAVAILABLE, "the test ends"))


def wait(watcher: ChangeWatcher, seen: int, topic: str = "runs", seconds: float = WAIT) -> News:
    return watcher.wait(seen, frozenset({topic}), seconds=seconds, ended=NEVER)


def test_nothing_is_asked_without_a_page_and_once_for_many(source: Source, watcher: ChangeWatcher) -> None:
    assert source.streams.empty() and watcher.number is None
    with watcher.page(NOW) as first, watcher.page(NOW):
        source.given.put(Changes())
        news = wait(watcher, first)
        assert (news.live, news.changed) == (True, True), "what changed before is not known"
        source.given.put(RUNS)
        assert wait(watcher, news.number).changed
        assert not wait(watcher, news.number, "cluster", seconds=0.05).changed
        assert watcher.number == news.number + 1
    assert source.streams.qsize() == 1


def test_a_broken_feed_is_told_and_taken_again(source: Source, watcher: ChangeWatcher) -> None:
    with watcher.page(NOW) as seen:
        source.given.put(Changes())
        seen = wait(watcher, seen).number
        source.given.put(TobanError(ErrorCode.UNAVAILABLE, "gone"))
        assert not wait(watcher, seen).live
        source.given.put(Changes())
        news = wait(watcher, seen)
        assert news.live and news.changed and source.streams.qsize() == 2


def test_what_changes_while_no_page_is_open_is_not_known(
    source: Source, watcher: ChangeWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LINGER_SECONDS", 0.0)
    with watcher.page(NOW) as seen:
        source.given.put(Changes())
        wait(watcher, seen)
    source.given.put(Changes())  # Without a page the subscription ends with the next answer.
    wait_for(lambda: watcher.number is None)
    with watcher.page(SystemClock().wall()) as seen:
        source.given.put(Changes())
        news = wait(watcher, seen)
        assert news.live and news.changed and source.streams.qsize() == 2


def test_a_slow_page_learns_that_something_changed(watcher: ChangeWatcher) -> None:
    for _ in range(loop.KEPT + 5):
        watcher.publish(RUNS)
    assert wait(watcher, 0, "cluster", seconds=0).changed, "what it missed is not kept any more"


@pytest.mark.parametrize(
    ("change", "topic", "touched"),
    [
        (RUNS, "runs", True),
        (RUNS, "run:7", True),
        (RUNS, "run:8", False),
        (Changes(frozenset({"runs"})), "run:8", True),
        (Changes(frozenset({"cluster"})), "run:7", False),
        (Changes(frozenset({"settings"})), "settings", True),
        (Changes(), "runs", False),
    ],
)
def test_which_pages_a_change_touches(change: Changes, topic: str, touched: bool) -> None:
    assert change.touch({topic}) is touched


def test_when_a_page_was_made() -> None:
    assert parse_since(str(NOW.timestamp() - 5), NOW) == NOW - timedelta(seconds=5)
    assert all(parse_since(text, NOW) == NOW for text in ("", "x", "nan", "1e400", "7", str(NOW.timestamp() + 5)))


def test_topics() -> None:
    assert topics_of("runs.show", {"run_id": 7}) == "run:7" and topics_of("runs.listed", {}) == "runs"
    assert parse_topics("runs run:7 run:x nonsense") == {"runs", "run:7"}


def test_the_newest_pages_of_a_person_have_the_places() -> None:
    pages = LivePages(PAGES_OF_A_PERSON + 1)
    mine = [pages.take("ada") for _ in range(PAGES_OF_A_PERSON)]
    newest = pages.take("ada")
    assert newest and mine[0] and mine[0].ended.is_set() and not newest.ended.is_set()
    assert pages.take("bob") is None, "until the page that ended has left"
    pages.leave(mine[0])
    assert pages.take("bob")


def test_the_stream_of_a_page(web: Any) -> None:
    board = web.worker.context.changes
    board.publish(Changes())
    link = re.search(r'data-changes="([^"]+)"', web.page("/runs"))
    assert link
    board.publish(RUNS)
    response = web.get(link[1].replace("&amp;", "&"))
    events = iter(response.response)
    assert next(events).startswith(b"retry: ")
    assert b"event: live" in next(events)
    assert b"event: change" in next(events), "between the page and its stream"
    board.publish(RUNS)
    assert b"event: change" in next(events)
    response.close()
    assert web.get("/live?of=nonsense").status_code == 400


def test_a_full_site_lets_a_page_ask_by_itself(new_web: Callable[..., Any]) -> None:
    web = new_web(http_threads=4)
    first = web.get("/live?of=runs")
    text = web.get("/live?of=runs").get_data(as_text=True)
    assert "event: away" in text and "retry: 60000" in text
    first.close()


def test_parts_that_are_asked_for_together_are_made_once(web: Any) -> None:
    def asked() -> int:
        return sum(type(one).__name__ == "ListRunsRequest" for one in web.cluster.reader.requests)

    assert web.get("/runs?part=1").data == web.get("/runs?part=1").data
    assert asked() == 1
    assert web.get("/runs?part=1&state=FAILED").status_code == 200
    assert asked() == 2, "another filter is another part"
    web.worker.context.changes.publish(RUNS)
    assert web.get("/runs?part=1").status_code == 200
    assert asked() == 3, "something has changed"
    web.get("/runs")
    assert asked() == 4, "a page is never kept"


def test_parts_are_shared_by_people_with_the_same_rights_only(web: Any) -> None:
    def asked() -> int:
        return sum(type(one).__name__ == "ListRunsRequest" for one in web.cluster.reader.requests)

    def read_as(user: str, access: str) -> None:
        web.worker.context.gate.people.person = lambda *_given, **_more: SignedIn(
            user=user, role="viewer", access=access
        )
        assert web.get("/runs?part=1").status_code == 200

    before = asked()
    read_as("ada", "one")
    read_as("bob", "one")
    assert asked() == before + 1
    read_as("cem", "other")
    assert asked() == before + 2
    read_as("dan", "")
    read_as("eve", "")
    assert asked() == before + 4, "of an older release, which marks no rights"


def test_a_button_is_offered_where_the_rules_of_the_person_allow_it(web: Any, subtests: Any) -> None:
    """Also in a part, which people with other rules have got a moment before."""
    web.cluster.reader.responses |= {
        "GetJob": web.job(spec_json='{"labels": {"team": "ops"}}'),
        "GetRun": web.run(7, "SUCCEEDED", scope="system"),
    }
    paths = {
        "/jobs/hello": "/jobs/hello/run",
        "/schedules/hello-often": "/schedules/hello-often/pause",
        "/runs/7": "/runs/7/rerun",
    }
    new = "/new/schedule?job=hello"
    allow, deny = Effect.ALLOW, Effect.DENY
    run, edit, rerun = paths.values()
    for number, (rules, offered) in enumerate(
        [
            ((), {run, edit, rerun, new}),
            ([(allow, Selector())], {run, edit, rerun, new}),
            ([(allow, Selector(job="other"))], set()),
            ([(allow, Selector()), (deny, Selector(job="hello"))], set()),
            # The labels of a run or a schedule are not known here, those of the job are.
            ([(allow, Selector(labels={"team": "web"}))], {edit, rerun}),
            ([(allow, Selector()), (deny, Selector(labels={"team": "ops"}))], {edit, rerun}),
            ([(allow, Selector(job="hello", scope="system"))], {run, edit, rerun, new}),
            # A schedule may get any scope.
            ([(allow, Selector(scope="account"))], {new}),
            ([(allow, Selector(job="hello", scope="account", scope_id="7"))], {new}),
            ([(allow, Selector()), (deny, Selector(job="hello", scope="system"))], {new}),
            ([(allow, Selector(scope="account", scope_id="7")), (deny, Selector(scope="account"))], set()),
        ]
    ):
        roles = {allow: Role.EDITOR, deny: Role.OPERATOR}
        given = tuple(Rule(id=1, effect=effect, role=roles[effect], selector=one) for effect, one in rules)
        person = SignedIn(user="op", role="editor", access=f"access {number}", rules=given)
        web.worker.context.gate.people.person = lambda *_given, one=person, **_more: one
        for query in ("", "?part=1"):
            with subtests.test(rules=rules, query=query):
                found = {link for path, link in paths.items() if f'href="{link}"' in web.page(path + query)}
                found |= {new} if f'href="{new}"' in web.page("/jobs/hello" + query) else set()
                assert found == offered


@pytest.mark.parametrize(
    "path", ["/account?part=1", "/api/docs?part=1", "/runs/1/log?part=1", "/runs/1/log.txt?part=1"]
)
def test_nothing_but_parts_is_kept(web: Any, path: str) -> None:
    web.get(path)
    assert len(web.worker.context.parts) == 0
    web.get("/runs?part=1")
    assert len(web.worker.context.parts) == 1


def test_no_part_names_the_person() -> None:
    templates = Path(__file__).resolve().parents[3] / "web" / "templates"
    parts = [*templates.glob("*_part.html"), templates / "macros.html", templates / "leader_pill.html"]
    assert len(parts) > 10
    assert [one.name for one in parts if "person.user" in one.read_text(encoding="utf-8")] == []
