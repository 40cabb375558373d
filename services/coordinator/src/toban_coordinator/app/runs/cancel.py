"""JobControl.CancelRun: at once where nothing runs, else a request that its proof ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.metrics import count_finished
from toban_coordinator.app.runs.run_queries import run_not_found
from toban_coordinator.app.withdraw_offers import hold_seconds, withdraw_offers
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.runs import runs, runs_finish
from toban_coordinator.store.runs.runs import CancelView
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.run import RunState
from toban_domain.transitions import Finish, RequestCancel
from toban_store.pool import Pool
from toban_store.tx import Tx, tx

MODES = ("", "cooperative", "kill")


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRun:
    """Not a leader's write: conditional on the locked row."""

    pool: Pool
    definitions: DefinitionCache

    async def cancel(self, run_id: int, *, reason: str, mode: str, actor: str, noted: bool = True) -> bool:
        """`mode` "" is that of the definition; `kill` is an operator's kill, which waits for no step. False: it was asked to stop before.
        `noted` False: the caller writes the audit.

        Raises RUN_NOT_FOUND, RESOURCE_INVALID_STATE for a terminal run, CANCEL_UNSUPPORTED for a sent one whose job says so and that is not killed.
        """
        if mode not in MODES:
            known = "cooperative or kill"
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"mode {mode!r} is not a mode of a cancel; use {known}, or leave it out"
            )
        reason = audit.clean_reason(reason)
        async with tx(self.pool) as t:
            return await self.cancel_in(t, run_id, reason=reason, mode=mode, actor=actor, noted=noted)

    async def cancel_in(self, t: Tx, run_id: int, *, reason: str, mode: str, actor: str, noted: bool = True) -> bool:
        """As `cancel`, in a transaction of the caller."""
        run = await runs.lock_for_cancel(t, run_id)
        if run is None:
            raise await _not_live(t, run_id, mode)
        done = await self._cancel_locked(t, run, reason=reason, mode=mode, actor=actor)
        if done is not None and noted:
            before, after = {"state": run.state.value}, {"state": done.value, **({"mode": mode} if mode else {})}
            action = "run.kill" if mode == "kill" else "run.cancel"
            await audit.note(t, actor, action, f"run {run.id}", reason, before=before, after=after)
        return done is not None

    async def _cancel_locked(self, t: Tx, run: CancelView, *, reason: str, mode: str, actor: str) -> RunState | None:
        """The state after it; None when nothing changes."""
        if run.state is RunState.CANCEL_REQUESTED:
            if mode != "kill" or not await runs.kill_canceled(t, run.id, reason=reason, actor=actor):
                return None
            await t.notify("dispatch")
            return RunState.CANCEL_REQUESTED
        if run.state is RunState.WAITING_WORKER and not run.claimed:
            await withdraw_offers(t, [run.id], "cancelled before a worker claimed it")
            await _end(t, replace(run, state=RunState.PENDING, token=None), reason, actor)
            return RunState.CANCELED
        if run.sent and run.state is not RunState.ORPHANED:
            await self._request(t, run, reason, mode, actor)
            return RunState.CANCEL_REQUESTED
        await _end(t, run, reason, actor)
        return RunState.CANCELED

    async def _request(self, t: Tx, run: CancelView, reason: str, mode: str, actor: str) -> None:
        key = (run.definition_id, run.definition_version)
        spec = await self.definitions.get(t, key)
        if not spec.cancel.supported and mode != "kill":
            raise TobanError(
                ErrorCode.CANCEL_UNSUPPORTED,
                f"job {spec.name!r} says `cancel.supported: false`; an operator may end it: toban run kill {run.id}",
            )
        move = RequestCancel(
            run_id=run.id,
            source=run.state,
            token=run.token,
            reason=reason,
            mode=mode,
            actor=actor,
            hold_seconds=hold_seconds(spec, run.step, mode) if run.claimed else None,
        )
        await runs_finish.request_cancel(t, [move])
        await t.notify("dispatch")


async def _end(t: Tx, run: CancelView, reason: str, actor: str) -> None:
    finish = Finish(
        run_id=run.id,
        source=run.state,
        token=run.token,
        target=RunState.CANCELED,
        reason="canceled",
        message=reason or "cancelled before it was sent",
        actor=actor,
    )
    count_finished(await runs_finish.finish(t, [finish]))


async def _not_live(t: Tx, run_id: int, mode: str) -> TobanError:
    state = await runs.final_state(t, run_id)
    if state is None:
        return run_not_found(run_id)
    return TobanError(
        ErrorCode.RESOURCE_INVALID_STATE,
        f"run {run_id} is {state.value} already and cannot be {'killed' if mode == 'kill' else 'cancelled'}: it has ended",
        detail={"state": state.value},
    )
