"""What is done about a dead executor by the process that its guards start: report the outcomes that they kept, then attest the death."""

from collections.abc import Sequence
from typing import Protocol

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.app.outcome_reporter import OutcomeReporter
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

_FINAL = frozenset({ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED, ErrorCode.WRONG_INCARNATION})
"""Answers that no further try changes."""
_log = get_logger(__name__)


class DeathGateway(Protocol):
    """Any coordinator."""

    async def attest_death(self, instance_secret: str, *, nonce: int) -> Sequence[str]:
        """Attest that nothing is left of the incarnation, whose last grant brought `nonce`; the known log-archivers. Raises TobanError."""
        ...


class Witness:
    """Speaks for one incarnation. Not `proven`: a guard is missing, so only outcomes are reported and the lease ends by itself."""

    def __init__(
        self,
        *,
        gateway: DeathGateway,
        reporter: OutcomeReporter,
        instance_secret: str,
        nonce: int,
        proven: bool,
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._gateway = gateway
        self._reporter = reporter
        self._instance_secret = instance_secret
        self._nonce = nonce
        self._proven = proven
        self._clock = clock
        self._backoff = backoff
        self._outcomes = reporter.pending

    async def run(self) -> Sequence[str]:
        """Repeated until coordinators have answered or refuse for good; the log-archivers that one knows, none without an attestation."""
        attempt = 0
        while True:
            try:
                await self._report()
                return await self._attest()
            except TobanError as error:
                if error.code in _FINAL:
                    _log.error(
                        "coordinators refuse the witness of a dead executor; that executor's lease ends by itself",
                        code=error.code.value,
                        error=error.message,
                    )
                    return ()
                attempt += 1
                delay = self._backoff.delay(attempt)
                _log.warning(
                    "the death of an executor cannot be attested yet",
                    attempt=attempt,
                    error=error.message,
                    next_try_seconds=round(delay, 2),
                )
            await self._clock.sleep(delay)

    async def _report(self) -> None:
        """Before the attestation: what has ended must not be taken for lost. Raises TobanError while some have no final answer."""
        while waiting := self._reporter.pending:
            await self._reporter.run_once()
            if self._reporter.pending >= waiting:
                raise TobanError(ErrorCode.UNAVAILABLE, f"{waiting} outcomes cannot be stored now")

    async def _attest(self) -> Sequence[str]:
        if refused := len(self._reporter.quarantined):
            _log.error("outcomes are refused: the death of their executor is not attested", outcomes=refused)
            return ()
        if not self._proven:
            _log.warning(
                "the executor has died, and a guard of its jobs with it: its runs restart when its lease has ended",
                outcomes_reported=self._outcomes,
            )
            return ()
        archivers = await self._gateway.attest_death(self._instance_secret, nonce=self._nonce)
        _log.warning("the executor has died: its runs restart elsewhere now", outcomes_reported=self._outcomes)
        return archivers
