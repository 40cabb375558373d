"""Asks for grants, and does what the answers say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.loops.attempt_manager import Attempts, instant
from toban_executor.ports import Beat, BeatAnswer, Gateway, Journal, Relayed, Vitals
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock

_log = get_logger(__name__)
_beats = metrics.counter(
    "toban_executor_heartbeats_total", "Heartbeats by result: granted, refused, error.", ("result",)
)

_CLOSED = frozenset({"draining", "detached", "cut", "off"})
_ENDED = frozenset({"cut", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What heartbeats tell about the machine and the settings, and who hears where the archivers are and which settings count."""

    labels: Mapping[str, str] = field(default_factory=dict)
    load: Callable[[], float] = lambda: 0.0
    vitals: Callable[[], Vitals | None] = lambda: None
    on_archivers: Callable[[Sequence[str]], None] = lambda _addresses: None
    settings_version: Callable[[], int] = lambda: 0
    on_settings: Callable[[int], None] = lambda _version: None


class Heartbeat:
    """`over` becomes a reason when this incarnation can never work again: its row is off, or nobody knows it."""

    def __init__(
        self, *, gateway: Gateway, attempts: Attempts, journal: Journal, clock: Clock, around: Surroundings
    ) -> None:
        self.over = ""
        self.state = "on"
        # A coordinator has heard that no new work is wanted.
        self.told = False
        self._gateway = gateway
        self._attempts = attempts
        self._journal = journal
        self._clock = clock
        self._around = around
        self._echo = 0
        self._outcomes: list[tuple[int, str]] = []

    async def run_once(self) -> bool:
        """One heartbeat, and a second at once when the first only told the sequence to echo. True when granted.

        Raises TobanError when no coordinator answers.
        """
        granted = await self._beat()
        if not granted and not self.over and self.state not in _ENDED:
            granted = await self._beat()
        return granted

    async def _beat(self) -> bool:
        beat = self._request(list(self._outcomes))
        sent = instant(self._clock)
        try:
            answer = await self._gateway.heartbeat(beat)
        except TobanError as error:
            _beats.labels("error").inc()
            if error.code in (ErrorCode.INCARNATION_UNKNOWN, ErrorCode.WRONG_INCARNATION):
                self.over = f"coordinator does not know this incarnation: {error.message}"
                return False
            raise
        del self._outcomes[: len(beat.outcomes)]
        self.told = beat.draining
        self._attempts.progress.heard(beat.progress)
        _beats.labels("granted" if answer.granted else "refused").inc()
        self._echo = max(self._echo, answer.grant_seq)
        if answer.granted:
            self._attempts.granted(sent)
        await self._obey(answer)
        return answer.granted

    async def farewell(self) -> None:
        """The last word, once the guards have ended and every outcome is committed: nothing runs here and nothing will.

        The row is closed at once then, instead of after its lease; what became of relayed orders goes along, so that refused runs are not taken
        for lost. Raises TobanError when no coordinator answers.
        """
        await self._gateway.heartbeat(replace(self._request(list(self._outcomes)), stopped=True))

    def _request(self, outcomes: Sequence[tuple[int, str]]) -> Beat:
        book = self._attempts.book
        held = book.live
        return Beat(
            echo=self._echo,
            epoch_max=book.epoch_max,
            free_slots=book.free_slots,
            held=held,
            progress=self._attempts.progress.unheard(key for key, _state in held),
            outcomes=outcomes,
            draining=book.drained or book.stopping,
            settings_version=self._around.settings_version(),
            load=self._around.load(),
            labels=self._around.labels,
            vitals=self._around.vitals(),
        )

    async def _obey(self, answer: BeatAnswer) -> None:
        book = self._attempts.book
        if answer.epoch > book.epoch_max:
            # Without waiting, so that a slow disk costs no lease; the first order of the epoch waits for it.
            self._journal.post_records(book.raise_epoch(answer.epoch))
        if answer.smallest_live > book.smallest_live:
            book.forget_below(answer.smallest_live)
            self._journal.forget_below(answer.smallest_live)
        self._note_state(answer.state)
        self._around.on_settings(answer.settings_version)
        if answer.state == "detached" and answer.detach_mode:
            self._leave(answer.detach_mode)
        lost = book.live_of(answer.not_held)
        if lost:
            _log.warning("ending attempts that are not ours any more", run_ids=[key.run_id for key in lost])
        self._attempts.end(lost, cause="not_held", reason="the cluster does not hold this attempt for us", grace=0.0)
        if answer.log_archivers:
            self._around.on_archivers(answer.log_archivers)
        for order in answer.orders:
            self._outcomes.append((order.order_id, await self._relayed(order)))

    def _note_state(self, state: str) -> None:
        if state != self.state:
            _log.warning("executor state", state=state, before=self.state)
        self.state = state
        self._attempts.book.row_closed = state in _CLOSED
        if state in _ENDED:
            self._attempts.end_all(cause="lease", reason=f"the executor was put {state}", grace=0.0)
        if state == "off":
            self.over = "the executor's row is off"

    def _leave(self, mode: str) -> None:
        """An operator has detached this incarnation: its runs end now or by themselves, then the process joins anew."""
        if mode == "stop":
            self._attempts.end_all(cause="lease", reason="an operator detached the executor", grace=None)
        if self._attempts.idle.is_set():
            self.over = f"an operator detached it ({mode})"

    async def _relayed(self, order: Relayed) -> str:
        """Carry out an order that the leader could not deliver; the result goes with the next heartbeat."""
        attempts = self._attempts
        if order.cancel is not None:
            return ",".join(await attempts.cancel(order.header, order.cancel, relayed=True))
        if order.revoke is not None:
            return ",".join(await attempts.revoke(order.header, order.revoke, relayed=True))
        if order.drain is not None:
            return await attempts.drain(order.header, order.drain)
        answers = await attempts.start(order.header, order.start or (), order.smallest_live)
        return ",".join(answer.refusal or "accepted" for answer in answers)
