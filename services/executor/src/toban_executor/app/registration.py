"""Registers an incarnation, and applies what the coordinator answers: its lease, its epoch, its number of slots."""

import asyncio
from collections.abc import Callable

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.app.attempt_manager import AttemptManager
from toban_executor.app.outcome_reporter import INHERITED
from toban_executor.guard import guard_state
from toban_executor.ports.coordinator import Gateway, Identity, Registered
from toban_executor.ports.guards import Prepared
from toban_executor.ports.journal import Journal
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

_log = get_logger(__name__)


class Registration:
    """`machine` names this machine. `save_slots` keeps the number of slots for the next start, `arm_witness` gives the guards what the witness
    of this process's death needs; both raise OSError."""

    def __init__(
        self,
        *,
        gateway: Gateway,
        attempts: AttemptManager,
        journal: Journal,
        prepared: Prepared,
        machine: str,
        save_slots: Callable[[int], None],
        arm_witness: Callable[[Identity, Registered], Callable[[int], None]],
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        self._gateway = gateway
        self._attempts = attempts
        self._journal = journal
        self._prepared = prepared
        self._machine = machine
        self._save_slots = save_slots
        self._arm_witness = arm_witness
        self._clock = clock
        self._backoff = backoff

    async def run(self, identity: Identity, stop: asyncio.Event) -> bool:
        """Register, repeatedly until a coordinator accepts or `stop` is set. True when jobs may be taken.

        False without `stop`: the incarnation is over, and the lease has the reason.
        """
        # In this order: after a crash between the two the directory still counts as copied.
        await self._journal.set_meta("instance", identity.instance)
        await self._journal.set_meta("machine", self._machine)
        try:
            registered = await self._register(identity, stop)
        except TobanError as error:
            # Without its key this incarnation is lost; the next one attests its end.
            await self._journal.set_meta("registered", identity.incarnation)
            self._attempts.lease.end(f"its key never arrived: {error.message}")
            return False
        if registered is None:
            return False
        await self._journal.set_meta("registered", identity.incarnation)
        try:
            self._attempts.lease.nonces.note = self._arm_witness(identity, registered)
        except OSError as error:
            _log.warning(
                "no witness will attest the death of this process; its lease would have to end", error=str(error)
            )
        for old in self._prepared.settled:
            guard_state.forget(self._prepared.state_dir / "guards", old)
        self._attempts.epochs.note_signed(registered.signed_epoch)
        await self._attempts.epochs.learn(registered.epoch)
        if registered.max_jobs and not self._apply_slots(registered.max_jobs):
            return False
        self._attempts.lease.begin(registered)
        _log.info("registered", worker_id=registered.worker_id, incarnation=identity.incarnation)
        return True

    async def _register(self, identity: Identity, stop: asyncio.Event) -> Registered | None:
        """The coordinator's answer; None when `stop` came first.

        Raises TobanError ALREADY_EXISTS when an earlier try has registered the incarnation and its answer, with the key, was lost.
        """
        attempt = 0
        while not stop.is_set():
            try:
                return await self._gateway.register(
                    identity,
                    self._attempts.book.epoch_max,
                    self._attempts.first_reports(INHERITED),
                    self._attempts.epochs.signed,
                )
            except TobanError as error:
                if error.code is ErrorCode.ALREADY_EXISTS:
                    raise
                attempt += 1
                delay = self._backoff.delay(attempt)
                _log.warning("register failed", attempt=attempt, error=error.message, next_try_seconds=round(delay, 2))
                await self._pause(stop, delay)
        return None

    async def _pause(self, stop: asyncio.Event, seconds: float) -> None:
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _apply_slots(self, wanted: int) -> bool:
        """Use the number of slots that the setting gives. False when there are fewer guards: the next incarnation has enough."""
        guards, most = len(self._prepared.guards.slots), self._prepared.most_slots
        slots = min(wanted, most)
        if slots < wanted:
            _log.warning("max_jobs_per_worker is more than this machine can start", wanted=wanted, slots=slots)
        saved = slots == guards or self._save(slots)
        if slots > guards and saved:
            self._attempts.lease.end(f"max_jobs_per_worker is {slots}, its guards are {guards}")
            return False
        self._attempts.book.slots = min(slots, guards)
        return True

    def _save(self, slots: int) -> bool:
        try:
            self._save_slots(slots)
        except OSError as error:
            # The next incarnation would start with as few as this one, and so would all after it.
            _log.error("cannot save max_jobs_per_worker; the number of slots stays as it is", error=str(error))
            return False
        return True
