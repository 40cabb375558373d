"""What the answer to a heartbeat, or to a question about continuation, does to the attempts before any grant in it counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from toban_domain.outcome import AttemptKey
from toban_executor.app.attempt_manager import AttemptManager
from toban_observability.logs import get_logger

_CLOSED = frozenset({"draining", "detached", "cut", "off"})
_ENDED = frozenset({"cut", "off"})
_DETACHED = "an operator detached the executor (stop)"
_log = get_logger(__name__)


class LeaseAnswers:
    """Ends what the executor's state, an operator or the cluster's own list does not let run on."""

    def __init__(self, *, attempts: AttemptManager) -> None:
        self._attempts = attempts

    @property
    def may_be_granted(self) -> bool:
        """Whether the row, as last known, gives grants."""
        return not self._attempts.lease.over and self._attempts.lease.row_state not in _ENDED

    def apply_state(self, state: str, detach_mode: str = "") -> None:
        """The state of the executor's row, and how an operator has detached it."""
        attempts, lease = self._attempts, self._attempts.lease
        if state != lease.row_state:
            _log.warning("executor state changed", state=state, before=lease.row_state)
        lease.row_state, lease.detach_mode = state, detach_mode if state == "detached" else ""
        attempts.book.row_closed = state in _CLOSED
        if attempts.book.row_closed:
            attempts.waiting.return_all("closed")
        if state in _ENDED:
            # Those of `on_lease_loss: continue` run on, and report under this incarnation.
            reason = f"the executor was put {state}"
            attempts.end_all(cause="lease", reason=reason, grace=0.0, but=attempts.lease_end.continuing)
        if state == "off" and not attempts.lease_end.continuing:
            lease.end("the executor's row is off")
        if lease.detach_mode:
            self._detach(lease.detach_mode)

    def _detach(self, mode: str) -> None:
        """Once its runs have ended, the process registers again as another incarnation."""
        if mode == "stop":
            self._attempts.end_all(cause="lease", reason=_DETACHED, grace=None)
        if self._attempts.idle.is_set():
            self._attempts.lease.end(f"an operator detached it ({mode})")

    def end_not_held(self, keys: Collection[AttemptKey]) -> None:
        """PostgreSQL does not hold these for this incarnation: they may run elsewhere."""
        lost = self._attempts.book.live_of(keys)
        if lost:
            _log.warning(
                "ending attempts that the cluster does not hold for this executor", run_ids=[key.run_id for key in lost]
            )
        self._attempts.end(lost, cause="not_held", reason="the cluster does not hold this attempt for us", grace=0.0)

    def end_refused(self, refused: Mapping[AttemptKey, str]) -> None:
        """These may not continue, each for its reason: canceled, not_held, detached."""
        self.end_not_held([key for key, reason in refused.items() if reason == "not_held"])
        canceled = [key for key, reason in refused.items() if reason == "canceled"]
        self._attempts.end(canceled, cause="cancel", reason="canceled", grace=None)
        detached = [key for key, reason in refused.items() if reason not in ("not_held", "canceled")]
        self._attempts.end(detached, cause="lease", reason=_DETACHED, grace=None)
