"""The loop that sends webhooks: as many at a time as it may, the others meanwhile, and nothing lost when a call fails."""

import logging
import threading
from collections.abc import Sequence

import pytest

from toban_admin_web.loops.webhooks import AWAY_SECONDS, WebhookSender
from toban_admin_web.ports.webhooks import Batch, Outgoing, PostResult
from toban_domain.errors import ErrorCode, TobanError

AWAY = TobanError(ErrorCode.UNAVAILABLE, "no coordinator answers")
SENT = PostResult(outcome="accepted", status=204)


def outgoing(number: int) -> Outgoing:
    return Outgoing(delivery=number, lease="l", webhook="pager", url="https://a.example/", headers={}, body=b"")


class FakeOutbox:
    """Gives out `waiting`; `failures` are raised by the next calls to confirm."""

    def __init__(self, *numbers: int, failures: Sequence[TobanError] = ()) -> None:
        self.waiting = [outgoing(number) for number in numbers]
        self.limits: list[int] = []
        self.failures = list(failures)
        self.away = False
        self.confirmed: list[int] = []
        self.in_time = True
        self.tried = threading.Semaphore(0)

    def claim(self, limit: int) -> Batch:
        if self.away:
            raise AWAY
        self.limits.append(limit)
        given, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return Batch(requests=given, next_poll_seconds=1.0)

    def confirm(self, one: Outgoing, result: PostResult) -> bool:
        assert result == SENT
        failure = self.failures.pop(0) if self.failures else None
        if failure is None:
            self.confirmed.append(one.delivery)
        self.tried.release()
        if failure is not None:
            raise failure
        return self.in_time


class FakePoster:
    """Holds every post until it is let go."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def post(self, one: Outgoing) -> PostResult:
        self.started.release()
        assert self.go.acquire(timeout=30)
        return SENT


def test_it_claims_for_the_senders_that_are_free() -> None:
    outbox, poster = FakeOutbox(1, 2, 3, 4), FakePoster()
    sender = WebhookSender(outbox=outbox, poster=poster, senders=3)
    assert sender.run_once() == 1.0
    for _ in range(3):
        assert poster.started.acquire(timeout=30)
    turn = threading.Thread(target=sender.run_once)
    turn.start()
    assert outbox.limits == [3], "it waits for a sender"
    poster.go.release()
    turn.join(30)
    assert outbox.limits == [3, 1]
    for _ in range(3):
        poster.go.release()
    sender.stop()
    assert sorted(outbox.confirmed) == [1, 2, 3, 4]


def test_an_outcome_is_stored_by_a_later_call() -> None:
    outbox, poster = FakeOutbox(1, failures=[AWAY]), FakePoster()
    poster.go.release()
    sender = WebhookSender(outbox=outbox, poster=poster, senders=1)
    sender.run_once()
    for _ in range(2):
        assert outbox.tried.acquire(timeout=30)
    sender.stop()
    assert outbox.confirmed == [1]


def test_while_no_coordinator_responds_it_asks_rarely() -> None:
    outbox = FakeOutbox(1)
    outbox.away = True
    sender = WebhookSender(outbox=outbox, poster=FakePoster(), senders=2)
    assert sender.run_once() == AWAY_SECONDS
    outbox.away = False
    assert sender.run_once() == 1.0


def test_a_stop_ends_the_wait_for_a_sender() -> None:
    outbox, poster = FakeOutbox(1, 2), FakePoster()
    sender = WebhookSender(outbox=outbox, poster=poster, senders=1)
    sender.start()
    assert poster.started.acquire(timeout=30)
    poster.go.release()
    assert poster.started.acquire(timeout=30), "the second one follows the first"
    stopping = threading.Thread(target=sender.stop)
    stopping.start()
    poster.go.release()
    stopping.join(30)
    assert sorted(outbox.confirmed) == [1, 2]


def test_a_replica_without_senders_claims_nothing() -> None:
    outbox = FakeOutbox(1)
    sender = WebhookSender(outbox=outbox, poster=FakePoster(), senders=0)
    sender.start()
    sender.stop()
    assert outbox.limits == []


def test_a_thread_that_cannot_start_leaves_the_number_of_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    outbox, poster = FakeOutbox(1, 2), FakePoster()
    poster.go.release()
    sender = WebhookSender(outbox=outbox, poster=poster, senders=2)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert sender.run_once() == AWAY_SECONDS
    # The lease of the first two has ended meanwhile.
    outbox.waiting = [outgoing(1)]
    assert sender.run_once() == 1.0
    assert outbox.tried.acquire(timeout=30)
    sender.stop()
    assert outbox.limits == [2, 2] and outbox.confirmed == [1]


def test_an_outcome_after_the_lease_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outbox, poster = FakeOutbox(1), FakePoster()
    outbox.in_time = False
    poster.go.release()
    sender = WebhookSender(outbox=outbox, poster=poster, senders=1)
    with caplog.at_level(logging.INFO):
        sender.run_once()
        assert outbox.tried.acquire(timeout=30)
        sender.stop()
    assert "came after its lease" in caplog.text
