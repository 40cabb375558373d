"""Claims deliveries of webhooks from the coordinators and sends them, several at a time; what fails is tried again when the coordinators say."""

from __future__ import annotations

import threading

from toban_admin_web.ports.webhooks import Outbox, Outgoing, Poster, PostResult
from toban_domain.errors import TobanError
from toban_observability import metrics
from toban_observability.logs import get_logger

# While no coordinator responds.
AWAY_SECONDS = 5.0
CONFIRM_TRIES = 3
# How long a stop waits for what is under way; the rest is sent again when its lease has ended.
GRACE_SECONDS = 3.0

_log = get_logger(__name__)
_posts = metrics.counter(
    "toban_site_webhook_posts_total",
    "Requests to targets of webhooks, by outcome: accepted, refused (a status that is not 200 to 299), unreachable, denied (an address that "
    "SCHEDULER_WEBHOOK_ALLOW does not have).",
    ("outcome",),
)


class WebhookSender:
    """Claims deliveries in a thread, and sends each in one of its own: at most `senders` at a time, none with 0."""

    def __init__(self, *, outbox: Outbox, poster: Poster, senders: int) -> None:
        self._outbox = outbox
        self._poster = poster
        self._senders = senders
        self._free = senders
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._away = False

    def start(self) -> None:
        """Starts the thread that claims."""
        if self._senders:
            self._thread.start()

    def stop(self) -> None:
        """Claims nothing more, and waits GRACE_SECONDS at most for requests under way."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._free == self._senders, GRACE_SECONDS)

    def run_once(self) -> float:
        """Waits for a free sender, claims as many deliveries as senders are free, and starts them; seconds until the next turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0 or self._stopping.is_set())
            free = self._free
        if self._stopping.is_set():
            return 0.0
        try:
            batch = self._outbox.claim(free)
        except TobanError as error:
            if not self._away:
                _log.warning("cannot claim webhooks", error=error.message, next_try_seconds=AWAY_SECONDS)
            self._away = True
            return AWAY_SECONDS
        if self._away:
            _log.info("webhooks can be claimed again")
        self._away = False
        for one in batch.requests:
            if not self._start(one):
                return AWAY_SECONDS
        return batch.next_poll_seconds

    def _start(self, one: Outgoing) -> bool:
        """False when the process cannot start a thread. Claimed deliveries are sent when their lease has ended."""
        self._add_free(-1)
        try:
            threading.Thread(target=self._send, args=(one,), name=f"webhook {one.delivery}", daemon=True).start()
        except RuntimeError as error:
            self._add_free(+1)
            _log.warning("cannot start a thread for a webhook", error=str(error), next_try_seconds=AWAY_SECONDS)
            return False
        return True

    def _add_free(self, change: int) -> None:
        with self._changed:
            self._free += change
            self._changed.notify_all()

    def _send(self, one: Outgoing) -> None:
        try:
            result = self._poster.post(one)
            _posts.labels(result.outcome).inc()
            self._confirm(one, result)
        except Exception:
            # Nothing is lost: it is sent again when its lease has ended.
            _log.exception("a webhook could not be sent", subject=one.webhook, delivery=one.delivery)
        finally:
            self._add_free(+1)

    def _confirm(self, one: Outgoing, result: PostResult) -> None:
        for tried in range(1, CONFIRM_TRIES + 1):
            try:
                if not self._outbox.confirm(one, result):
                    _log.info(
                        "the outcome of a webhook came after its lease; it is sent again, with the same id",
                        subject=one.webhook,
                        delivery=one.delivery,
                    )
                return
            except TobanError as error:
                if tried == CONFIRM_TRIES:
                    _log.warning(
                        "the outcome of a webhook could not be stored; it is sent again, with the same id",
                        subject=one.webhook,
                        delivery=one.delivery,
                        error=error.message,
                    )
                elif self._stopping.wait(tried):
                    return

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                seconds = self.run_once()
            except Exception:
                _log.exception("claiming webhooks failed")
                seconds = AWAY_SECONDS
            self._stopping.wait(seconds)
