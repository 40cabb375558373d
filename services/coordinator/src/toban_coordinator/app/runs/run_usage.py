"""CPU and memory of a run while it runs: its executor samples them, and is asked for them only when a person looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.app.runs.run_queries import run_not_found
from toban_coordinator.ports.orders import ExecutorProbe, Target
from toban_coordinator.store.cluster import read_models
from toban_domain.errors import TobanError
from toban_domain.outcome import AttemptKey
from toban_domain.usage import UsageSample
from toban_store.pool import Pool
from toban_store.tx import autocommit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUsages:
    """Any coordinator answers: an executor takes the question from each."""

    pool: Pool
    probe: ExecutorProbe

    async def get(self, run_id: int) -> tuple[Sequence[UsageSample], str]:
        """The samples, oldest first, and "" or why there are none. Raises RUN_NOT_FOUND."""
        async with autocommit(self.pool) as t:
            place = await read_models.place(t, run_id)
        if place is None:
            raise run_not_found(run_id)
        if place["incarnation"] is None:
            return (), "no executor runs it now"
        target = Target(place["incarnation"], place["worker_id"], place["address"])
        try:
            samples = await self.probe.usage(target, AttemptKey(run_id, place["token"]))
        except TobanError as error:
            return (), f"its executor does not answer: {error.message}"
        return samples, "" if samples else "its executor has no sample yet; it takes one each five seconds"
