"""The check of the isolation of jobs: executors of class `shared`, limits that are not held, and jobs that wait for class `isolated`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_domain.finding import Finding
from toban_domain.job import ISOLATED

NAME = "isolation"
_BY_RLIMITS = " by rlimits"
"""How an executor ends the words about limits that no control group holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedJobs:
    """Enabled jobs that demand class `isolated` while no such executor takes work, and the first few names."""

    jobs: int
    names: str


def isolation(subject: str, kind: str, details: Sequence[str], *, guarded_steps: str) -> Finding:
    """Of one executor. With `guarded_steps` (container, kubernetes) jobs run in containers, which isolate them."""
    value = ", ".join([kind, *details])
    if kind != ISOLATED:
        if guarded_steps:
            return Finding(name=NAME, subject=subject, value=f"{kind}, jobs run in containers")
        if details:
            # It has a sandbox, or an administrator has chosen the class.
            return Finding(name=NAME, subject=subject, value=value)
        return Finding(
            name=NAME,
            subject=subject,
            value=value,
            status="warning",
            message="jobs of this executor are one trust level: who may edit one of them reaches the others and the key of the executor",
            remedy="run it in class isolated: its log says what it lacks, docs/isolation.md how; or give each trust level an executor group",
        )
    if missed := _not_held(details):
        return Finding(
            name=NAME,
            subject=subject,
            value=value,
            status="warning",
            message=f"limits are not held for a slot: {missed}",
            remedy="give it a control group that it may write to (systemd: Delegate=yes), or unset SCHEDULER_JOB_MEMORY_MB and SCHEDULER_JOB_CPUS",
        )
    return Finding(name=NAME, subject=subject, value=value)


def isolated_jobs(facts: IsolatedJobs) -> Finding:
    """No job waits for a class that no executor has."""
    if not facts.jobs:
        return Finding(name=NAME, subject="jobs", value="none waits for an isolated executor")
    return Finding(
        name=NAME,
        subject="jobs",
        value=f"{facts.jobs} without an executor",
        status="error",
        message=f"they demand isolation: isolated, and no executor of that class takes work, so their runs wait: {facts.names}",
        remedy="start or undrain an executor of class isolated (docs/isolation.md), or take the key out of these jobs",
    )


def _not_held(details: Sequence[str]) -> str:
    """The kernel counts processes by uid, so that limit is held without a group, too."""
    limits = [
        limit for one in details if one.endswith(_BY_RLIMITS) for limit in one.removesuffix(_BY_RLIMITS).split(", ")
    ]
    memory = [f"{one} is for each process" for one in limits if one.endswith("of memory")]
    return "; ".join([*memory, *(f"{one} has no effect" for one in limits if one.endswith("CPUs"))])
