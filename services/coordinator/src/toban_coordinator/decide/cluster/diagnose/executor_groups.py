"""The check of the groups of executors: each one has an executor, and what the default group may claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toban_domain.executor_group import ANY, DEFAULT_GROUP
from toban_domain.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group and how many of its executors are not off."""

    name: str
    labels: Mapping[str, str]
    claims: Sequence[str]
    executors: int

    @property
    def subject(self) -> str:
        """How it is called."""
        return f"executor group {self.name}"

    @property
    def value(self) -> str:
        """What its executors have."""
        labels = ", ".join(f"{key}={value}" for key, value in sorted(self.labels.items())) or "no labels"
        claims = "any label" if ANY in self.claims else ", ".join(sorted(self.claims)) or "nothing"
        noun = "executor" if self.executors == 1 else "executors"
        return f"{self.executors} {noun}, {labels}, may claim {claims}"


def executor_groups(groups: Sequence[GroupFacts]) -> list[Finding]:
    """A finding for each group, in the order given."""
    return [_finding(group) for group in groups]


def _finding(group: GroupFacts) -> Finding:
    if group.executors or group.name == DEFAULT_GROUP:
        return Finding(name="executor-group", subject=group.subject, value=group.value)
    labels = ", ".join(f"{key}={value}" for key, value in sorted(group.labels.items()))
    wait = f"jobs that select {labels} wait" if labels else "nothing runs in it"
    return Finding(
        name="executor-group",
        subject=group.subject,
        value=group.value,
        status="warning",
        message=f"the group has no executor: {wait}",
        remedy=f"start an executor with its certificate and see its log, or: toban group delete {group.name}",
    )
