"""A worker before a scripted site: heartbeats, lost claims, refused ends, an absent site and the stop."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from toban.client import Target
from toban.errors import AccessError
from toban.worker import Step, StepStoppedError, Worker
from toban.worker.site import WorkSite
from toban.worker.step import now
from toban_testing.scripted_site import ScriptedSite, problem, says, scripted_site

STEP = {
    "key": {"run_id": 7, "token": "4611686018427387905"},
    "step_id": "s",
    "payload": {"in": "a"},
    "lock_ttl_ms": 300,
    "lock_margin_ms": 30,
    "job": "video",
    "step_name": "s",
    "attempt": 1,
    "timeout_ms": 0,
    "previous_result": None,
    "result_expected": False,
    "scheduled_for": None,
}
SECONDS = 30.0
EXTENDED = says(200, {"lost": [], "cancel": []})


class Coordinator:
    """Offers one step, then none; `answers` replaces the answer of a route."""

    def __init__(self, site: ScriptedSite, step: dict[str, Any] | None = None) -> None:
        self.offers = [step or STEP]
        self.answers: dict[str, Any] = {}
        self.calls: list[str] = []
        self.seen = threading.Condition()
        self.site = site
        site.script = [self.answer]

    def answer(self, handler: Any) -> None:
        route = handler.path.rpartition("/")[2]
        with self.seen:
            self.calls.append(route)
            self.seen.notify_all()
            offered = [self.offers.pop()] if route == "claims" and self.offers else []
        usual = {
            "claims": says(200, {"steps": offered}),
            "heartbeats": EXTENDED,
            "progress": says(200, {"cancel_requested": False}),
            "log": says(200, {"last_seq": 0, "cancel_requested": False}),
            "complete": says(200, {"answers": [{"key": STEP["key"], "result": "accepted", "code": "", "message": ""}]}),
        }
        if not offered and route == "claims":
            # A long poll without a step; it ends at once with the test.
            self.over.wait(0.05)
        self.answers.get(route, usual.get(route, says(200, {"result": "accepted"})))(handler)

    over = threading.Event()

    def wait_for(self, route: str, times: int = 1) -> None:
        with self.seen:
            assert self.seen.wait_for(lambda: self.calls.count(route) >= times, SECONDS), (route, self.calls)

    def bodies(self, route: str) -> list[Any]:
        with self.site.lock:
            return [seen.body for seen in self.site.seen if seen.path.endswith(f"/{route}")]


@pytest.fixture
def site() -> Iterator[ScriptedSite]:
    with scripted_site() as running:
        yield running


@contextmanager
def serving(site: ScriptedSite, function: Callable[[Step], Any]) -> Iterator[Worker]:
    worker = Worker(Target(url=site.url, token="toban_pat_x"), name="gpu:1")
    worker.task("transcode")(function)
    thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False, "grace_seconds": SECONDS})
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_step_is_extended_while_it_works_and_completed(site: ScriptedSite) -> None:
    coordinator = Coordinator(site)

    def work(step: Step) -> dict[str, Any]:
        coordinator.wait_for("heartbeats", 3)
        assert step.fence == 4611686018427387905 and step.payload == {"in": "a"}
        return {"out": 1}

    with serving(site, work):
        coordinator.wait_for("complete")
    assert coordinator.bodies("complete") == [
        {"worker": "gpu:1", "steps": [{"key": STEP["key"], "result": {"out": 1}}]}
    ]
    assert coordinator.bodies("heartbeats")[0] == {"worker": "gpu:1", "keys": [STEP["key"]]}
    assert coordinator.bodies("claims")[0] == {
        "worker": "gpu:1",
        "worker_type": "transcode",
        "limit": 1,
        "wait_seconds": 2.0,
    }


@pytest.mark.parametrize(
    ("lock_seconds", "timeout_seconds", "wait"), [(3, 0, 1.0), (3600, 0, 10.0), (3600, 6, 2.0), (1, 0, 0.5)]
)
def test_a_wait_for_steps_takes_little_from_lock_and_timeout(
    site: ScriptedSite, lock_seconds: int, timeout_seconds: int, wait: float
) -> None:
    given = {"lock_ttl_ms": lock_seconds * 1000, "timeout_ms": timeout_seconds * 1000}
    coordinator = Coordinator(site, {**STEP, **given})
    with serving(site, lambda _: None):
        coordinator.wait_for("claims", 3)
    assert coordinator.bodies("claims")[2]["wait_seconds"] == wait


@pytest.fixture
def late_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim is answered 200 s after it was asked for."""
    monkeypatch.setattr("toban.worker.service.now", lambda: now() - 200)


@pytest.mark.usefixtures("late_claims")
def test_a_claim_that_arrives_after_its_end_is_extended_before_its_work_begins(site: ScriptedSite) -> None:
    coordinator = Coordinator(site, {**STEP, "lock_ttl_ms": 60_000})

    def work(step: Step) -> None:
        assert coordinator.calls.count("heartbeats") == 1
        step.check()

    with serving(site, work):
        coordinator.wait_for("complete")


@pytest.mark.usefixtures("late_claims")
@pytest.mark.parametrize(
    "answer", [says(200, {"lost": [STEP["key"]], "cancel": []}), problem(503, "UNAVAILABLE")], ids=["lost", "no answer"]
)
def test_work_on_a_claim_that_has_ended_does_not_begin(site: ScriptedSite, answer: Any) -> None:
    coordinator = Coordinator(site, {**STEP, "lock_ttl_ms": 60_000})
    coordinator.answers["heartbeats"] = answer
    begun: list[Step] = []
    with serving(site, begun.append):
        coordinator.wait_for("claims", 3)
    assert begun == [] and not {"complete", "fail"} & set(coordinator.calls)


@pytest.mark.usefixtures("late_claims")
def test_a_claim_that_has_little_left_is_extended_at_once(site: ScriptedSite) -> None:
    coordinator = Coordinator(site, {**STEP, "lock_ttl_ms": 300_000})
    # Before the work begins, there is no answer.
    coordinator.answers["heartbeats"] = problem(503, "UNAVAILABLE")

    def work(step: Step) -> None:
        coordinator.answers["heartbeats"] = EXTENDED
        coordinator.wait_for("heartbeats", 2)
        step.check()

    with serving(site, work):
        coordinator.wait_for("complete")


def test_an_answer_that_comes_too_late_does_not_bring_a_lost_claim_back(site: ScriptedSite) -> None:
    target = Target(url=site.url, token="toban_pat_x")
    step = Step(STEP, WorkSite(target, "gpu:1", 0.0), sent=now() - 60)
    step.extend(now())
    assert step.is_lost
    held = Step({**STEP, "lock_ttl_ms": 60_000}, WorkSite(target, "gpu:1", 0.0), sent=now())
    held.lose()
    held.extend(now())
    assert held.is_lost


def ends_by_check(coordinator: Coordinator, site: ScriptedSite) -> StepStoppedError:
    """How a step that works on until it must stop is stopped."""
    stopped: list[StepStoppedError] = []
    over = threading.Event()

    def work(step: Step) -> None:
        try:
            while not threading.Event().wait(0.01):
                step.check()
        except StepStoppedError as error:
            stopped.append(error)
            raise
        finally:
            over.set()

    with serving(site, work):
        assert over.wait(SECONDS)
    return stopped[0]


def test_a_claim_that_an_answer_names_as_lost_stops_its_work(site: ScriptedSite) -> None:
    coordinator = Coordinator(site, {**STEP, "lock_ttl_ms": 600})
    coordinator.answers["heartbeats"] = says(200, {"lost": [STEP["key"]], "cancel": []})
    assert "lost" in str(ends_by_check(coordinator, site))
    assert not {"complete", "fail", "acknowledge-cancel"} & set(coordinator.calls)


def test_a_claim_that_nothing_extends_ends_by_the_clock_of_the_worker(site: ScriptedSite) -> None:
    coordinator = Coordinator(site)
    coordinator.answers["heartbeats"] = problem(503, "UNAVAILABLE")
    assert "lost" in str(ends_by_check(coordinator, site))
    assert coordinator.calls.count("heartbeats") >= 1


def test_a_cancel_is_acknowledged(site: ScriptedSite) -> None:
    # Long enough that a busy machine does not lose the claim before its first heartbeat.
    coordinator = Coordinator(site, {**STEP, "lock_ttl_ms": 9_000})
    coordinator.answers["heartbeats"] = says(200, {"lost": [], "cancel": [STEP["key"]]})
    assert "cancelled" in str(ends_by_check(coordinator, site))
    assert coordinator.bodies("acknowledge-cancel") == [{"worker": "gpu:1", "key": STEP["key"]}]


@pytest.mark.parametrize("fails", [False, True])
def test_the_output_of_a_step_is_sent_before_its_end(site: ScriptedSite, fails: bool) -> None:
    coordinator = Coordinator(site)

    def work(step: Step) -> None:
        print("printed")  # noqa: T201
        step.log("two\nlines", stream="stderr")
        if fails:
            raise ValueError("broken")

    with serving(site, work):
        coordinator.wait_for("fail" if fails else "complete")
    assert coordinator.calls.index("log") < coordinator.calls.index("fail" if fails else "complete")
    sent = [line for body in coordinator.bodies("log") for line in body["lines"]]
    texts = [(line["stream"], line["text"]) for line in sent]
    assert texts[:3] == [("stdout", "printed"), ("stderr", "two"), ("stderr", "lines")]
    assert texts[3:4] == [("stderr", "Traceback (most recent call last):")] * fails
    assert texts[-1] == (("stderr", "ValueError: broken") if fails else ("stderr", "lines"))


def test_a_step_under_way_shows_its_output(site: ScriptedSite) -> None:
    coordinator = Coordinator(site)

    def work(step: Step) -> None:
        print("begins")  # noqa: T201
        coordinator.wait_for("log")

    with serving(site, work):
        coordinator.wait_for("complete")


def test_a_result_that_is_no_json_fails_the_step(site: ScriptedSite) -> None:
    coordinator = Coordinator(site)
    with serving(site, lambda _: object()):
        coordinator.wait_for("fail")
    [body] = coordinator.bodies("fail")
    assert body["retryable"] and "JSON" in body["error"]


def test_a_refused_end_and_an_absent_site_do_not_end_the_worker(site: ScriptedSite) -> None:
    coordinator = Coordinator(site)
    coordinator.offers = [STEP, STEP]
    coordinator.answers["complete"] = problem(409, "CLAIM_LOST")
    with serving(site, lambda _: None):
        coordinator.wait_for("complete", 2)
        coordinator.answers["claims"] = problem(503, "UNAVAILABLE")
        coordinator.wait_for("claims", coordinator.calls.count("claims") + 1)


def test_a_refused_token_ends_the_worker_with_its_error(site: ScriptedSite) -> None:
    coordinator = Coordinator(site)
    coordinator.answers["claims"] = problem(401, "UNAUTHENTICATED", "the token is revoked")
    worker = Worker(Target(url=site.url, token="toban_pat_x"))
    worker.task("transcode")(lambda _: None)
    with pytest.raises(AccessError, match="revoked"):
        worker.run(handle_signals=False)


@pytest.mark.parametrize(("status", "code"), [(413, "PAYLOAD_TOO_LARGE"), (400, "INVALID_ARGUMENT")])
def test_a_refused_result_fails_the_step_finally(site: ScriptedSite, status: int, code: str) -> None:
    coordinator = Coordinator(site)
    coordinator.answers["complete"] = problem(status, code, "too large")
    with serving(site, lambda _: "x"):
        coordinator.wait_for("fail")
    [body] = coordinator.bodies("fail")
    assert not body["retryable"] and "the result is refused" in body["error"] and "too large" in body["error"]


async def cancel_itself(_: Step) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "name"), [(lambda _: sys.exit(3), "SystemExit"), (cancel_itself, "CancelledError")]
)
def test_a_task_that_ends_its_thread_fails_its_step(
    site: ScriptedSite, function: Callable[[Step], Any], name: str
) -> None:
    coordinator = Coordinator(site)
    with serving(site, function):
        coordinator.wait_for("fail")
    [body] = coordinator.bodies("fail")
    assert body["retryable"] and body["error"].startswith(name)


def run_to_its_end(site: ScriptedSite, coordinator: Coordinator) -> BaseException | None:
    """What `run` of a worker raises; it must end by itself."""
    raised: list[BaseException] = []
    worker = Worker(Target(url=site.url, token="toban_pat_x"), name="gpu:1")
    worker.task("transcode")(lambda _: coordinator.wait_for("heartbeats"))

    def run() -> None:
        try:
            worker.run(handle_signals=False, grace_seconds=SECONDS)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    return raised[0] if raised else None


def test_a_worker_that_cannot_start_a_thread_fails_the_step_and_ends(
    site: ScriptedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("toban-run-"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    coordinator = Coordinator(site)
    assert isinstance(run_to_its_end(site, coordinator), RuntimeError)
    [body] = coordinator.bodies("fail")
    assert body["retryable"] and "cannot start a thread" in body["error"]


@pytest.mark.parametrize("route", ["claims", "heartbeats"])
def test_an_answer_that_ends_a_thread_ends_the_worker(site: ScriptedSite, route: str) -> None:
    coordinator = Coordinator(site)
    coordinator.answers[route] = says(200, {"unexpected": 1})
    assert isinstance(run_to_its_end(site, coordinator), KeyError)


def test_wrong_tasks_are_refused() -> None:
    worker = Worker()
    with pytest.raises(ValueError, match="has no task"):
        worker.run()
    with pytest.raises(ValueError, match="at least 1"):
        worker.task("a", concurrency=0)
    worker.task("a")(lambda _: None)
    with pytest.raises(ValueError, match="has a task already"):
        worker.task("a")
    assert Worker().name != Worker().name
