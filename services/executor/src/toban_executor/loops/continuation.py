"""Asks coordinators whether the attempts may continue when heartbeats have not renewed the lease, and after a detach (docs/fencing.md 3.7)."""

from __future__ import annotations

from toban_domain.errors import TobanError
from toban_executor.app.attempt_manager import AttemptManager
from toban_executor.app.lease import instant
from toban_executor.app.lease_answers import LeaseAnswers
from toban_executor.decide.continuation import Round, View, answered, step, wait_seconds
from toban_executor.ports.coordinator import ContinuationQuestion, Gateway, Target
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

MAX_WAIT_SECONDS = 0.5
# Without attempts there is nothing to ask about: the first one wakes the loop.
IDLE_SECONDS = 1.0
# Attempts that one question names.
MOST_KEYS = 10_000
_log = get_logger(__name__)
_questions = metrics.counter(
    "toban_executor_continuations_total",
    "Questions whether attempts may continue, by coordinator (leader, subleader, other) and result (confirmed, refused, error).",
    ("path", "result"),
)


class Continuation:
    """`run_once` is the body of a loop whose tick is `wait_seconds`. It asks one coordinator at a time, beside the heartbeats."""

    def __init__(self, *, gateway: Gateway, attempts: AttemptManager, clock: Clock) -> None:
        self._gateway = gateway
        self._attempts = attempts
        self._answers = LeaseAnswers(attempts=attempts)
        self._clock = clock
        self._round = Round()

    def wait_seconds(self) -> float:
        """The time until the next look."""
        lease = self._attempts.lease
        if not self._attempts.book.live:
            return IDLE_SECONDS
        if lease.deadline is None:
            return MAX_WAIT_SECONDS
        return wait_seconds(self._view(), lease.plan, at_most=MAX_WAIT_SECONDS)

    async def run_once(self) -> None:
        """One try, when one is due."""
        lease = self._attempts.lease
        if lease.deadline is None or lease.over or lease.superseded:
            return
        plan = lease.plan
        self._round, number = step(self._round, self._view(), plan, self._clock.boottime())
        if number is None:
            return
        confirmed = await self._ask(number, plan.call)
        self._round = answered(self._round, plan, self._clock.boottime(), confirmed=confirmed)

    def _view(self) -> View:
        attempts, lease = self._attempts, self._attempts.lease
        assert lease.deadline is not None
        return View(
            deadline=lease.deadline.boot,
            left=lease.left,
            live=bool(attempts.book.live),
            killable=bool(attempts.lease_end.to_kill),
            detached=lease.detach_mode == "let_finish",
        )

    async def _ask(self, number: int, seconds: float) -> bool:
        """Ask one coordinator; true when it has confirmed. Errors of the call are counted, and the next try goes elsewhere."""
        targets = self._gateway.continuation_targets()
        if not targets:
            return False
        target = targets[number % len(targets)]
        keys = [key for key, _state in self._attempts.book.live][:MOST_KEYS]
        question = ContinuationQuestion(
            echo=self._attempts.lease.echo,
            nonce=self._attempts.lease.nonces.nonce,
            keys=keys,
            signed_epoch=self._attempts.epochs.signed,
        )
        sent = instant(self._clock)
        try:
            answer = await self._gateway.confirm_continuation(target, question, timeout=seconds)
        except TobanError as error:
            _questions.labels(target.path, "error").inc()
            _log.warning(
                "continuation not confirmed: a coordinator did not answer",
                path=target.path,
                address=target.address,
                attempt=number + 1,
                lease_left_seconds=round(self._attempts.lease.left, 1),
                error=error.message,
            )
            return False
        lease = self._attempts.lease
        lease.echo = max(lease.echo, answer.grant_seq)
        # Before the grant counts for any attempt, as with heartbeats.
        self._answers.end_refused(answer.refused)
        self._answers.apply_state(answer.state, lease.detach_mode)
        if answer.confirmed:
            lease.nonces.granted(answer.nonce, presented=question.nonce)
            self._attempts.granted(sent)
            self._attempts.epochs.note_signed(answer.signed_epoch)
        self._note(target, answer.confirmed, keys=len(keys), refused=len(answer.refused), reason=answer.reason)
        return answer.confirmed

    def _note(self, target: Target, confirmed: bool, *, keys: int, refused: int, reason: str) -> None:
        _questions.labels(target.path, "confirmed" if confirmed else "refused").inc()
        known = {"path": target.path, "address": target.address, "attempts": keys, "refused": refused}
        if confirmed:
            _log.info("continuation confirmed: the lease is renewed", **known)
        else:
            _log.warning("continuation not confirmed", reason=reason, **known)
