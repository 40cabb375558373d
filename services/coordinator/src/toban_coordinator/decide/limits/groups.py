"""Policies over groups of runs: what a due run does while others of its group are live (docs/limits.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from toban_domain.job import JobSpec
from toban_domain.placement import DueRun

Place = tuple[datetime, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """The live runs of one group. `earliest` and `newest` are (time, run): of all, and of those that are due and were not sent."""

    sent: tuple[int, ...] = ()
    deferred: tuple[int, ...] = ()
    earliest: Place | None = None
    newest: Place | None = None
    claimed_by: int | None = None
    # Of a job with repeatable: false: the run that SUCCEEDED.
    succeeded: int | None = None


@dataclass(slots=True)
class Groups:
    """The groups of one batch of due runs, by (definition, group); grows with what the batch decides."""

    facts: Mapping[tuple[int, str], GroupFacts] = field(default_factory=dict)
    # Runs of slots and events that claim their groups when they are sent.
    claims: dict[tuple[int, str], int] = field(default_factory=dict)
    # Sent runs that a newer one replaces → that one.
    cancels: dict[int, int] = field(default_factory=dict)
    # Deferred runs that a newer one replaces → that one.
    replaced: dict[int, int] = field(default_factory=dict)

    def skip_reason(self, run: DueRun, spec: JobSpec) -> tuple[str, str] | None:
        """(reason, message) when the policy lets `run` not start at all; notes whom it replaces and what it claims."""
        if run.group is None:
            return None
        key = (run.definition_id, run.group)
        facts, policy = self.facts.get(key, GroupFacts()), spec.concurrency.policy_for(run.origin)
        if facts.succeeded is not None and not run.started:
            return "repeated", f"run {facts.succeeded} with the same dedupe keys has SUCCEEDED (repeatable: false)"
        if policy == "forbid":
            return self._forbid(run, facts)
        if policy == "reject_same_scope":
            return self._reject(run, key, facts)
        if policy == "replace":
            return self._replace(run, facts)
        return None

    def _forbid(self, run: DueRun, facts: GroupFacts) -> tuple[str, str] | None:
        if run.started or facts.earliest is None or facts.earliest >= (run.scheduled_for, run.id):
            return None
        return "overlap", f"run {facts.earliest[1]} with the same dedupe keys is still live (policy forbid)"

    def _reject(self, run: DueRun, key: tuple[int, str], facts: GroupFacts) -> tuple[str, str] | None:
        holder = facts.claimed_by if facts.claimed_by is not None else self.claims.get(key)
        if holder is not None and holder != run.id:
            return "same_scope", f"run {holder} with the same dedupe keys is still live (policy reject_same_scope)"
        if not run.claimed:
            self.claims[key] = run.id
        return None

    def _replace(self, run: DueRun, facts: GroupFacts) -> tuple[str, str] | None:
        if facts.newest is not None and facts.newest > (run.scheduled_for, run.id):
            return "replaced", f"run {facts.newest[1]} is newer (policy replace)"
        self.cancels |= dict.fromkeys(facts.sent, run.id)
        self.replaced |= {other: run.id for other in facts.deferred if other != run.id}
        return None
