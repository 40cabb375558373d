"""What executors say about the end of incarnations: their own, that of a dead process, those before them (docs/fencing.md 3.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toban_coordinator.app.runs.report_queue import ReportQueue
from toban_coordinator.decide.executors.instance_secret import may_register
from toban_coordinator.decide.runs.report import Report
from toban_coordinator.store.executors import executors
from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_store.pool import Pool

# Less than an executor waits for the answer with its key.
INHERIT_SECONDS = 2.5
# Another boot of its machine attests an incarnation that has left out so many heartbeats: one or two are lost with a connection.
SILENT_HEARTBEATS = 3
_log = get_logger(__name__)
_attestations = metrics.counter(
    "toban_attestations_total",
    "Executor incarnations attested as ended, by source: stopped (orderly stop), witness (started by the guards of a dead executor) or "
    "successor (next process on the same state directory).",
    ("source",),
)
for _source in ("stopped", "witness", "successor"):
    _attestations.labels(_source)
_withheld = metrics.counter(
    "toban_attestations_withheld_total",
    "Executor incarnations not attested as ended by another boot of their machine, because they had sent a heartbeat a moment before: the "
    "machine was cloned, or booted within seconds.",
)
_refusals = metrics.counter(
    "toban_instance_secret_refusals_total",
    "Registrations and attestations refused because of a wrong or missing instance secret.",
)


class DeathClaims:
    """Checks who may speak for an incarnation, and notes its end. The leader then closes its row."""

    def __init__(self, *, pool: Pool, reports: ReportQueue) -> None:
        self._pool = pool
        self._reports = reports

    async def check_instance(self, new: executors.Registration) -> None:
        """Who knows only the name of an instance does not take its place while it lives. Raises UNAUTHENTICATED."""
        if may_register(await executors.of_instance(self._pool, new.instance), new.secret_hash):
            return
        _refusals.inc()
        _log.error(
            "registration refused: its instance lives, with another secret", instance=new.instance, node_id=new.node_id
        )
        raise TobanError(
            ErrorCode.UNAUTHENTICATED,
            f"instance {new.instance} lives with another secret; give each executor its own state directory, and keep its file "
            "'instance-secret'; without that file it is accepted when the lease of the one before has ended",
        )

    async def note_own(self, incarnation: str, *, nonce: int, witnessed: bool, secret_hash: bytes | None) -> None:
        """An incarnation has stopped in order, or its witness attests its end. Raises UNAUTHENTICATED for a witness without the secret."""
        if witnessed and not await executors.proves_secret(self._pool, incarnation, secret_hash):
            _refusals.inc()
            _log.error("attestation of a witness refused: wrong instance secret", incarnation=incarnation)
            raise TobanError(
                ErrorCode.UNAUTHENTICATED, f"the instance secret of incarnation {incarnation} is wrong or missing"
            )
        reason = executors.WITNESSED if witnessed else executors.STOPPED
        if await executors.attest_own(self._pool, incarnation, reason, nonce=nonce):
            _attestations.labels("witness" if witnessed else "stopped").inc()

    async def inherit(
        self,
        new: executors.Registration,
        reports: Sequence[Report],
        reports_error: TobanError | None,
        *,
        heartbeat_seconds: float,
    ) -> None:
        """Commits what earlier incarnations have reached, then attests their death. `heartbeat_seconds` is the setting of the interval.

        Where that fails their leases end by themselves, and the executor reports again: the row is there, so its key must get out.
        """
        try:
            async with asyncio.timeout(INHERIT_SECONDS):
                if reports_error is not None:
                    raise reports_error
                if reports:
                    for committed in await self._reports.commit(new.incarnation, reports):
                        if not committed.answer.final:
                            # Its run would be repeated although it has ended; the lease leaves some time to store the outcome.
                            raise TobanError(ErrorCode.CONFLICT, f"an outcome is not stored: {committed.message}")
                silent = max(executors.MIN_SILENT_SECONDS, SILENT_HEARTBEATS * heartbeat_seconds)
                done = await executors.attest(self._pool, new, silent=silent)
                _attestations.labels("successor").inc(done.attested)
                self._note_not_silent(new, done.not_silent)
        except (TobanError, TimeoutError) as error:
            _log.warning(
                "previous incarnation not confirmed dead",
                incarnation=new.incarnation,
                error=str(error) or "no answer in time",
                reports=len(reports),
            )

    def _note_not_silent(self, new: executors.Registration, others: Sequence[str]) -> None:
        if others:
            _withheld.inc(len(others))
            _log.warning(
                "an executor with another boot id registers beside one of the same instance that sends heartbeats: "
                "was its machine cloned? it gets no work until the other one's lease has ended",
                incarnation=new.incarnation,
                others=", ".join(others),
                node_id=new.node_id,
                remedy="stop the clone and remove its state directory",
            )
