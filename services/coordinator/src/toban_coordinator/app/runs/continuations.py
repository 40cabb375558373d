"""Questions of executors whether their attempts may continue, batched. Only PostgreSQL answers: every coordinator, also a sub-leader, relays
the question, and none answers from what it knows itself (docs/fencing.md 3.7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toban_coordinator.ports.settings import SettingsSource
from toban_coordinator.store.runs import continuations
from toban_coordinator.store.runs.continuations import Question, Verdict
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.lease import MAX_ECHO_LAG, ExecutorState
from toban_domain.outcome import AttemptKey
from toban_observability import metrics
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_runtime.group_commit import GroupCommit, GroupLimits
from toban_store.pool import Pool

MAX_ATTEMPTS = 10_000
# Attempts of one batch, unless one question has more: an executor waits for at most half a second.
BATCH_ATTEMPTS = 2_000
# What CONFIRMING lasts beyond the tries of the executor, seconds.
CONFIRMING_MARGIN_SECONDS = 1.0
_ENDED = (ExecutorState.CUT, ExecutorState.OFF)
CANCELED, NOT_HELD, DETACHED = "canceled", "not_held", "detached"
_log = get_logger(__name__)
_questions = metrics.counter(
    "toban_continuations_total",
    "Questions of executors whether their attempts may continue, by result: confirmed, refused (no attempt may), withheld (the executor's "
    "state, or unacknowledged grants).",
    ("result",),
)
_refused = metrics.counter(
    "toban_continuations_refused_total",
    "Attempts that may not continue, by reason: canceled, not_held, detached.",
    ("reason",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The answer to one question. `refused` names the attempts that may not continue, each with the reason; `why` is for people."""

    verdict: Verdict
    refused: Mapping[AttemptKey, str] = field(default_factory=dict)
    why: str = ""


@dataclass(slots=True, eq=False)
class _Call:
    """A question that waits for its batch; None: a later one of its incarnation has replaced it."""

    question: Question | None


class Continuations:
    """Questions are asked at once when idle; while a batch is under way, newcomers wait for the next one, of each incarnation the last."""

    def __init__(self, *, pool: Pool, settings: SettingsSource, clock: Clock) -> None:
        self._pool = pool
        self._settings = settings
        self._clock = clock
        self._throttle = LogThrottle()
        self._waiting: dict[str, _Call] = {}
        self._group: GroupCommit[_Call, Continuation] = GroupCommit(
            self._confirm,
            limits=GroupLimits(max_items=BATCH_ATTEMPTS, max_size=BATCH_ATTEMPTS),
            size_of=lambda call: len(call.question.keys) if call.question else 0,
            name="continuations",
        )

    async def ask(self, question: Question) -> Continuation:
        """The answer, after the commit. Raises INVALID_ARGUMENT for too many attempts, INCARNATION_UNKNOWN; other errors: no grant is certain."""
        if not 0 < len(question.keys) <= MAX_ATTEMPTS:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"keys must name 1 to {MAX_ATTEMPTS} attempts, has {len(question.keys)}"
            )
        call = _Call(question)
        # Two of one incarnation share no grant, which could go to two copies of it; and a caller that gives up leaves its question here.
        if (earlier := self._waiting.get(question.incarnation)) is not None:
            earlier.question = None
        self._waiting[question.incarnation] = call
        answer = await self._group.submit(call)
        self._note(answer)
        return answer

    async def _confirm(self, calls: Sequence[_Call]) -> list[Continuation | Exception]:
        questions = [call.question for call in calls if call.question is not None]
        for question in questions:
            del self._waiting[question.incarnation]
        verdicts = {}
        if questions:
            known = self._settings.known
            seconds = known["continuation_retry_count"] * known["continuation_retry_interval_seconds"]
            verdicts = await continuations.confirm(self._pool, questions, seconds=seconds + CONFIRMING_MARGIN_SECONDS)
        return [
            _answer(call.question, verdicts.get(call.question.incarnation))
            if call.question is not None
            else TobanError(ErrorCode.UNAVAILABLE, "a later question of this incarnation is under way")
            for call in calls
        ]

    def _note(self, answer: Continuation) -> None:
        verdict = answer.verdict
        withheld = verdict.state in _ENDED or any(key not in answer.refused for key in verdict.held)
        _questions.labels("confirmed" if verdict.granted else "withheld" if withheld else "refused").inc()
        for reason in answer.refused.values():
            _refused.labels(reason).inc()
        subject = verdict.incarnation, verdict.granted, answer.why
        if (suppressed := self._throttle.admit(subject, self._clock.monotonic())) is not None:
            _log.info(
                "continuation confirmed" if verdict.granted else "continuation not confirmed",
                incarnation=verdict.incarnation,
                attempts=len(verdict.held),
                refused=len(answer.refused),
                reason=answer.why,
                not_logged=suppressed,
            )


def _answer(question: Question, verdict: Verdict | None) -> Continuation | TobanError:
    if verdict is None:
        return TobanError(ErrorCode.INCARNATION_UNKNOWN, f"there is no incarnation {question.incarnation}")
    refused = {}
    if verdict.state not in _ENDED:
        refused = {key: reason for key in question.keys if (reason := _reason(verdict, key))}
    return Continuation(
        verdict=verdict, refused=refused, why="" if verdict.granted else _why(verdict, question, refused)
    )


def _reason(verdict: Verdict, key: AttemptKey) -> str:
    """Why this attempt may not continue; "" when it may."""
    if key not in verdict.held:
        return NOT_HELD
    if verdict.held[key]:
        return CANCELED
    return DETACHED if verdict.detach_mode == "stop" else ""


def _why(verdict: Verdict, question: Question, refused: Mapping[AttemptKey, str]) -> str:
    if verdict.state in _ENDED:
        return f"the executor's row is {verdict.state.value}"
    if refused.keys() >= set(question.keys):
        return f"no attempt may continue ({', '.join(sorted(set(refused.values())))})"
    if not verdict.nonce_known:
        return "its nonce is not known: another copy of this executor may have its lease"
    return f"the echo {question.echo} lags behind grant {verdict.grant_seq} by more than {MAX_ECHO_LAG}"
