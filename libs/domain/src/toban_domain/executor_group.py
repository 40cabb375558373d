"""Groups of executors: their names, and the labels that an executor of a group may have (docs/executor-groups.md). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from toban_domain.errors import ErrorCode, TobanError

DEFAULT_GROUP = "default"
"""The group of executors whose certificate names none."""
GROUP_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""A group's name is a label of a DNS name, which clients pin."""
ANY = "*"
"""In `claims`: an executor may choose the value of each label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorGroup:
    """`labels` are those of each of its executors; `claims` names labels whose values an executor may choose. Only jobs with all of
    `job_labels` run there; without any, every job may."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    claims: frozenset[str] = frozenset()
    job_labels: Mapping[str, str] = field(default_factory=dict)

    def may_claim(self, key: str) -> bool:
        """Whether its executors choose the value of this label, as far as no other group has reserved it."""
        return key not in self.labels and (ANY in self.claims or key in self.claims)


def check_name(name: str) -> str:
    """The name. Raises INVALID_ARGUMENT for one that no group can have."""
    if not GROUP_NAME.fullmatch(name):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT,
            f"{name[:80]!r} is not a name of an executor group; use 1 to 63 of a-z, 0-9 and '-', and no '-' at an end",
        )
    return name


def reserved_by(key: str, value: str, group: ExecutorGroup, others: Iterable[ExecutorGroup]) -> str:
    """The group that alone may have this label, "" for none: one that gives it to its executors, while `group` does not."""
    if group.labels.get(key) == value:
        return ""
    return min((one.name for one in others if one.name != group.name and one.labels.get(key) == value), default="")


def closed_to(
    job_labels: Mapping[str, str], key: str, value: str, groups: Iterable[ExecutorGroup]
) -> ExecutorGroup | None:
    """A group that keeps a job with these labels from a label that it selects; None when another group with that label, or no group, does."""
    having = [one for one in groups if one.labels.get(key) == value]
    if any(one.job_labels.items() <= job_labels.items() for one in having):
        return None
    return min(having, key=lambda one: one.name, default=None)


def refusal(claimed: Mapping[str, str], group: ExecutorGroup, others: Iterable[ExecutorGroup]) -> str:
    """Why an executor of this group may not have the labels that it claims, with the remedy; "" when it may."""
    others = tuple(others)
    for key, value in sorted(claimed.items()):
        if group.labels.get(key) == value:
            continue
        if key in group.labels:
            return f"label {key}={value} is {key}={group.labels[key]} in group {group.name!r}; leave it out of SCHEDULER_LABELS"
        if not group.may_claim(key):
            return (
                f"executors of group {group.name!r} may not claim label {key}; "
                f"leave it out of SCHEDULER_LABELS, or: toban group set {group.name} --claim {key}"
            )
        if owner := reserved_by(key, value, group, others):
            return (
                f"label {key}={value} belongs to group {owner!r}; give the executor a certificate of that group, "
                "or leave the label out of SCHEDULER_LABELS"
            )
    return ""


def allowed_labels(claimed: Mapping[str, str], group: ExecutorGroup, others: Iterable[ExecutorGroup]) -> dict[str, str]:
    """The labels of a running executor by the present rules: those that it may claim, and those of its group."""
    others = tuple(others)
    kept = {
        key: value
        for key, value in claimed.items()
        if group.may_claim(key) and not reserved_by(key, value, group, others)
    }
    return kept | dict(group.labels)
