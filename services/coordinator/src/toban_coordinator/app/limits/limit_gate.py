"""The limits as the leader of a term knows them, and what its dispatch writes do about them. Runs without limits never come here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.withdraw_offers import hold_seconds, withdraw_offers
from toban_coordinator.decide.limits.groups import Groups
from toban_coordinator.decide.limits.limits import (
    Admission,
    LimitTable,
    Need,
    Usage,
    job_of,
    keys_of,
    leaves_half,
    together,
)
from toban_coordinator.store.limits import limits
from toban_coordinator.store.runs import runs_finish
from toban_domain.epoch import Term
from toban_domain.job import JobSpec
from toban_domain.placement import DueRun
from toban_domain.run import RunState
from toban_domain.transitions import Finish, Hold, LiveRun, Offer, Placement, RequestCancel
from toban_store.pool import Pool
from toban_store.tx import FencedTx, Tx, fenced_tx

# Of limits that are counted for each value of a payload there may be any number.
MOST_COUNTED = 10_000
# Rows of ended runs that a limit may have beside those that count; each costs a look at its run in every count. More where counts are rare.
DROP_AFTER, DROP_AFTER_AMPLE = 100, 1000
Specs = Mapping[tuple[int, int], JobSpec]
Sent = Placement | Offer


class LimitGate:
    """One of a term. `refresh` reads what the limits are. How they are used is counted in PostgreSQL, unless an earlier count shows that half of each
    stays free."""

    def __init__(self) -> None:
        self.table = LimitTable()
        self._loaded = False
        # Jobs that were asked for by name, so that it is known that they have no limits.
        self._asked: set[str] = set()
        # Jobs whose live runs all hold their limit.
        self._adopted: set[str] = set()
        self._adopting: set[str] = set()
        # How many rows each limit has got since those of ended runs were cleared away.
        self._held: Counter[str] = Counter()
        # A transaction of this term may have sent runs without an answer, and may still commit.
        self._in_doubt = False
        # What was counted before a commit that may have followed, or before runs got a limit: no part of that turn may go by it.
        self._outdated: Admission | None = None
        # What limits had taken when they were counted last, and all that was sent since: at least what they have taken now.
        self._counted: dict[str, Usage] = {}
        # The admission of the last turn: a limit that its runs came to wait for is counted again.
        self._last: Admission | None = None

    def concerns(self, spec: JobSpec) -> bool:
        """Whether a run of `spec` must come by here before it starts."""
        return not self._loaded or self.table.concerns(spec)

    def weights(self) -> dict[tuple[str, str], int]:
        """Scope → its weight in the fair queues, of those that have another one than 1."""
        found = {}
        for name, value in self.table.values.items():
            kind, _, scope = name.partition(":")
            if kind == "scope":
                first, _, scope_id = scope.partition("/")
                found[first, scope_id] = value
        return found

    async def refresh(self, t: Tx) -> bool:
        """Reads all limits; True when they have changed."""
        before, self.table = self.table, await limits.table(t, self._asked)
        self._counted.clear()
        self._loaded = True
        # A limit that is taken away and comes back has missed what started meanwhile.
        self._adopted = {job for job in self._adopted if self.table.limit_of(f"job:{job}") is not None}
        return before != self.table

    async def know(self, t: Tx, jobs: Collection[str]) -> None:
        """Makes sure that the current versions of `jobs` are known."""
        new = {job for job in jobs if job and job not in self.table.jobs and job not in self._asked}
        if new or not self._loaded:
            self._asked |= new
            await self.refresh(t)

    async def admission(
        self, t: Tx, due: Sequence[DueRun], specs: Specs, now: datetime
    ) -> tuple[Admission, Groups] | None:
        """What the limits and the groups say of `due`; None when no run of it is concerned."""
        if not self._loaded:
            await self.refresh(t)
        concerned = [(run, spec) for run, spec in _with_specs(due, specs) if self.table.concerns(spec)]
        if not concerned:
            return None
        await self.know(t, {spec.name for _, spec in concerned})
        needs = self.table.needs_of(concerned)
        usage: dict[str, Usage] = {}
        ample = self._is_ample(needs)
        if not ample:
            usage, ignoring = await limits.usage_for(t, keys_of(needs.values()), list(needs))
            if not self._in_doubt:
                self._counted |= usage
            for run_id in ignoring:
                needs[run_id] = tuple(need.ignored() for need in needs[run_id])
        keys = {(run.definition_id, run.group) for run, _ in concerned if run.group is not None}
        found = await limits.groups(t, keys, now) if keys else {}
        admission = self._last = Admission(needs, usage, ample=ample)
        if self._in_doubt:
            self._outdated = admission
        return admission, Groups(found)

    def _is_ample(self, needs: Mapping[int, Sequence[Need]]) -> bool:
        """Whether half of each limit stays free whatever of these is sent, by what was counted before: then nothing is counted.

        Only this process sends runs in its term, and runs come to wait for a limit by its plans alone."""
        if self._in_doubt or len(self._counted) > MOST_COUNTED:
            self._counted.clear()
        for key in self._last.waited_for if self._last is not None else ():
            self._counted.pop(key, None)
        return all(
            key in self._counted and leaves_half(need, self._counted[key])
            for key, (need, _) in together(needs.values()).items()
        )

    async def enter(
        self, t: FencedTx, sent: Sequence[Sent], due: Mapping[int, DueRun], admission: Admission
    ) -> list[Sent]:
        """Those of `sent` that the limits admit now, in the transaction that sends them, which has the lock `limits.LOCK`.

        Only this process sends runs in its term, so what `admission` has counted can have become less, not more. Where that is not known, the
        transaction counts again: after one whose outcome is unknown, which the lock has waited for, and when sent runs of a job get its limit. When
        a turn needs several transactions, all that follow count again as well.
        """
        # Of a transaction that was rolled back.
        self._adopting = set()
        needs = {p.run_id: admission.needs.get(p.run_id, ()) for p in sent}
        keys = keys_of(needs.values())
        if not keys:
            return list(sent)
        in_doubt, self._in_doubt = self._in_doubt, True
        adopted = await self._adopt(t, keys)
        if not adopted and not in_doubt and admission is not self._outdated:
            return list(sent)
        self._outdated = admission
        # The plan has looked at who waits; this is about the limit alone.
        usage = await limits.usage(t, keys)
        counted = Admission(needs, {key: replace(one, waiting=False, reserved=0) for key, one in usage.items()})
        admitted = []
        for one in sent:
            run = due[one.run_id]
            if counted.blocked_by(run) is None:
                counted.take(run)
                admitted.append(one)
        return admitted

    def holds(self, placements: Sequence[Placement], admission: Admission) -> list[Hold]:
        """What runs take of limits that count runs, for the statement that sends them."""
        return [
            Hold(key=need.key, run_id=one.run_id, weight=need.weight)
            for one in placements
            for need in admission.needs.get(one.run_id, ())
            if not need.window
        ]

    async def hold(self, t: FencedTx, sent: Sequence[Sent], due: Mapping[int, DueRun], admission: Admission) -> None:
        """What sent runs take beside `holds`, in the transaction that sends them. One that goes on after a dispatch has started before."""
        offered: list[tuple[int, Hold]] = []
        starts: list[tuple[int, Need]] = []
        for key, (all_of_it, times) in together(admission.needs.get(one.run_id, ()) for one in sent).items():
            if not all_of_it.window:
                self._held[key] += times
            if (counted := self._counted.get(key)) is not None:
                held, begun = counted.held + all_of_it.weight, counted.starts + times
                self._counted[key] = replace(counted, held=held, starts=begun)
        for one in sent:
            for need in admission.needs.get(one.run_id, ()):
                if not need.window:
                    if isinstance(one, Offer):
                        offered.append((one.token, Hold(key=need.key, run_id=one.run_id, weight=need.weight)))
                elif not due[one.run_id].keeps_limits:
                    starts.append((one.token, need))
        most = DROP_AFTER_AMPLE if admission.ample else DROP_AFTER
        drop = [key for key, rows in self._held.items() if rows >= most]
        await limits.hold(t, offered, starts, drop)
        for key in drop:
            del self._held[key]

    def committed(self) -> None:
        """The transaction of the last `enter` is committed, and with it every one that had the lock before."""
        self._in_doubt = False
        self._adopted |= self._adopting
        self._adopting = set()

    async def _adopt(self, t: FencedTx, keys: Collection[str]) -> bool:
        """Whether sent runs may hold a limit now that they did not hold before."""
        new = {job_of(key) for key in keys if key.startswith("job:")} - self._adopted
        self._adopting = new
        if new:
            self._counted.clear()
            await limits.adopt(t, new)
        return bool(new)


async def cancel_replaced(pool: Pool, term: Term, replaced: Mapping[int, int], definitions: DefinitionCache) -> None:
    """Sent runs that a newer one replaces (run → that one) are asked to stop; the newer one waits for the proof that they have."""
    async with fenced_tx(pool, term) as t:
        live = await runs_finish.lock_live(t, sorted(replaced))
        specs = await definitions.find(t, {(run.definition_id, run.definition_version) for run in live.values()})
        moves = [
            RequestCancel(
                run_id=run.id,
                source=run.state,
                token=run.token,
                reason=f"replaced by run {replaced[run.id]}",
                mode="",
                actor="leader",
                hold_seconds=_hold_seconds(run, specs),
            )
            for run in live.values()
            if run.token is not None and _may_request(run)
        ]
        await runs_finish.request_cancel(t, moves)
        withdrawn = await withdraw_offers(t, list(live), "a newer run replaces it")
        await runs_finish.finish(t, [_replaced(run, replaced[run]) for run in withdrawn])
        await t.notify("dispatch")


def _may_request(run: LiveRun) -> bool:
    return run.state in (RunState.ASSIGNED, RunState.RUNNING) or (
        run.state is RunState.WAITING_WORKER and run.locked_by is not None
    )


def _hold_seconds(run: LiveRun, specs: Specs) -> float | None:
    spec = specs.get((run.definition_id, run.definition_version))
    if run.locked_by is None or spec is None:
        return None
    return hold_seconds(spec, run.first_step, "")


def _replaced(run_id: int, by: int) -> Finish:
    return Finish(
        run_id=run_id,
        source=RunState.PENDING,
        token=None,
        target=RunState.CANCELED,
        reason="canceled",
        message=f"replaced by run {by}",
        actor="leader",
    )


def _with_specs(due: Sequence[DueRun], specs: Specs) -> list[tuple[DueRun, JobSpec]]:
    found = [(run, specs.get((run.definition_id, run.definition_version))) for run in due]
    return [(run, spec) for run, spec in found if spec is not None]
