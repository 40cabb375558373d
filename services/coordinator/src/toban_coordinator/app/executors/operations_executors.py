"""Operations on executors: drain, undrain, detach. Conditional on the executor's row, not on leadership (docs/fencing.md 3.5, 3.8).

An `epoch` is that of the leader that the operator saw: another one refuses the operation with CONFLICT. 0 is any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toban_coordinator.store.cluster import audit, read_models
from toban_coordinator.store.executors import executor_drains
from toban_coordinator.store.executors.executor_drains import Subject
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.lease import ExecutorState
from toban_fencing.operator import stale_epoch
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Row, Tx, tx

LET_FINISH, STOP = "let_finish", "stop"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOperations:
    """The executor learns of each by the answer to its next heartbeat; the leader by the row."""

    pool: Pool

    async def drain(self, worker_id: int, *, reason: str, actor: str, epoch: int = 0) -> Row:
        """No new work for the executor's instance, also after a restart, until it is undrained. Raises EXECUTOR_NOT_FOUND."""
        reason = audit.clean_reason(reason)
        async with tx(self.pool) as t:
            subject = await _subject(t, worker_id, epoch)
            if not (subject.drained and subject.drain_reason == reason):
                await executor_drains.drain(t, subject.instance, reason=reason, actor=actor)
                after = {"drained": True, "reason": reason}
                await _note(t, subject, "drain", after, reason=reason, actor=actor)
                await t.notify("dispatch")
            shown = await _shown(t, worker_id)
        _log.info("an executor is drained", worker_id=worker_id, instance=subject.instance, actor=actor)
        return shown

    async def undrain(self, worker_id: int, *, reason: str, actor: str, epoch: int = 0) -> Row:
        """Its next heartbeat puts it `on`. Undraining one that is not drained changes nothing. Raises EXECUTOR_NOT_FOUND."""
        async with tx(self.pool) as t:
            subject = await _subject(t, worker_id, epoch)
            if await executor_drains.undrain(t, subject.instance):
                await _note(t, subject, "undrain", {"drained": False}, reason=reason, actor=actor)
            shown = await _shown(t, worker_id)
        _log.info("an executor is not drained any more", worker_id=worker_id, instance=subject.instance, actor=actor)
        return shown

    async def detach(self, worker_id: int, *, mode: str = LET_FINISH, reason: str, actor: str, epoch: int = 0) -> Row:
        """No new work for this incarnation, for good: its process joins again with a new worker id when its runs are over.

        `let_finish` waits for their ends; `stop` ends them, and they repeat elsewhere. A detach that waits can become one that stops.

        Raises EXECUTOR_NOT_FOUND, INVALID_ARGUMENT for
        another mode, RESOURCE_INVALID_STATE when the executor is being detached, cut or off already.
        """
        mode = mode or LET_FINISH
        if mode not in (LET_FINISH, STOP):
            raise TobanError(ErrorCode.INVALID_ARGUMENT, f"mode is {mode!r}; use {LET_FINISH} or {STOP}")
        async with tx(self.pool) as t:
            subject = await _subject(t, worker_id, epoch)
            if not await executor_drains.detach(t, subject.incarnation, mode=mode):
                raise _not_detachable(subject)
            after = {"state": ExecutorState.DETACHED.value, "mode": mode}
            await _note(t, subject, "detach", after, reason=reason, actor=actor)
            await t.notify("dispatch")
            shown = await _shown(t, worker_id)
        _log.warning("an executor is detached", worker_id=worker_id, mode=mode, actor=actor)
        return shown


async def _subject(t: Tx, worker_id: int, epoch: int) -> Subject:
    if epoch and epoch != (present := (await read_models.leader(t))["epoch"]):
        raise stale_epoch(seen=epoch, present=present)
    found = await executor_drains.subject(t, worker_id)
    if found is None:
        raise TobanError(
            ErrorCode.EXECUTOR_NOT_FOUND, f"there is no executor {worker_id}; `toban executor list --all` shows them"
        )
    return found


async def _note(t: Tx, subject: Subject, action: str, after: Mapping[str, object], *, reason: str, actor: str) -> None:
    before = {"state": subject.state.value, "drained": subject.drained, "instance": subject.instance}
    target = f"executor {subject.worker_id} ({subject.node_id})"
    await audit.note(t, actor, action, target, reason, before=before, after=after)


async def _shown(t: Tx, worker_id: int) -> Row:
    [row] = await read_models.executors(t, include_off=True, worker_id=worker_id)
    return row


def _not_detachable(subject: Subject) -> TobanError:
    state = subject.state
    why = f"{state.value} already"
    if state is ExecutorState.DETACHED:
        why = f"being detached already ({subject.detach_mode})"
    return TobanError(
        ErrorCode.RESOURCE_INVALID_STATE,
        f"executor {subject.worker_id} is {why}; `toban executor list --all` shows its state",
        detail={"state": state.value, "mode": subject.detach_mode},
    )
