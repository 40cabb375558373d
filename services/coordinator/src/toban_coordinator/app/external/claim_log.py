"""ExternalWork.AppendLog: the output of a claim goes to the log-archivers, by (run, token, worker), on any coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.external.claim_heartbeats import claim_lost
from toban_coordinator.app.external.claim_names import check_worker
from toban_coordinator.decide.external.claim_log import LogSoFar, SentLine, check_lines, part_of
from toban_coordinator.ports.claim_logs import ClaimLogs, LogPlace
from toban_coordinator.store.external import external_claims
from toban_coordinator.store.external.external_claims import ClaimName, LogOfClaim
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.outcome import AttemptKey
from toban_store.pool import Pool
from toban_store.tx import autocommit


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """The number of the claim's last line, and whether its cancel was asked for."""

    last_seq: int
    canceled: bool


class ClaimLog:
    """Lines are stored first and counted afterwards: a call that failed in between is repeated, and its lines are stored once."""

    def __init__(self, *, pool: Pool, logs: ClaimLogs) -> None:
        self._pool = pool
        self._logs = logs
        self._definitions = DefinitionCache()

    async def append(self, worker: str, key: AttemptKey, *, first_seq: int, lines: Sequence[SentLine]) -> LogAnswer:
        """Appends lines from number `first_seq` on; those that the log has already are left as they are.

        Raises INVALID_ARGUMENT, CLAIM_LOST, and CONFLICT for lines that were sent before in another call, with another end. Any other TobanError:
        the same call may be sent again.
        """
        check_worker(worker)
        check_lines(first_seq, lines)
        name = ClaimName(key, worker)
        async with autocommit(self._pool) as t:
            found = _held(name, await external_claims.log_of(t, name))
            spec = await self._definitions.get(t, (found.definition_id, found.definition_version))
        before = LogSoFar.of(found.step)
        part = part_of(first_seq, lines, before, rules=spec.logs, payload_json=found.payload, now=found.now)
        if part is None:
            return LogAnswer(before.last_seq, found.canceled)
        await self._logs.append(LogPlace(key, found.log_day), part.blocks)
        async with autocommit(self._pool) as t:
            after = part.after
            if await external_claims.note_log(
                t, name, before=before.last_seq, last_seq=after.last_seq, used=after.used
            ):
                return LogAnswer(after.last_seq, found.canceled)
            found = _held(name, await external_claims.log_of(t, name))
        last_seq = LogSoFar.of(found.step).last_seq
        if last_seq < after.last_seq:
            text = f"another call has appended lines up to {last_seq} meanwhile; send one call after the other"
            raise TobanError(ErrorCode.CONFLICT, text)
        return LogAnswer(last_seq, found.canceled)


def _held(name: ClaimName, found: LogOfClaim | None) -> LogOfClaim:
    if found is None:
        raise claim_lost(name.worker, name.key)
    return found
