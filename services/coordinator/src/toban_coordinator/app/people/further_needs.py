"""What a request needs beside the right to its own jobs, so that who may change or start one job reaches no other by it.

Asked only for persons whose rights are for some jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toban_coordinator.app.runs.run_queries import MAX_LABELLED
from toban_coordinator.store.definitions import targets
from toban_coordinator.store.definitions.targets import Defined
from toban_coordinator.store.runs import run_lists
from toban_domain.access import Action, Target
from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_manifests.read import Manifest
from toban_store.tx import Tx

EVERYTHING = Target()
"""With `every`: all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """An action on a target, or with `every` on all jobs of its name and labels, and why the request needs it."""

    action: Action
    target: Target
    why: str
    every: bool = False


async def of_manifests(t: Tx, manifests: Sequence[Manifest]) -> list[Further]:
    """Of documents that are to be applied."""
    found = await _shown(t, manifests)
    if any(isinstance(m.spec, TriggerSpec) and m.spec.on_run_end is None for m in manifests):
        why = "a trigger shows events, which belong to no job"
        found.append(Further(action=Action.VIEW, target=EVERYTHING, why=why, every=True))
    jobs = [m.spec for m in manifests if isinstance(m.spec, JobSpec)]
    stored = await targets.definitions(t, [job.name for job in jobs])
    for job in jobs:
        found += await _of_job(t, job, stored.get(job.name))
    return found


async def of_starts(t: Tx, starts: Iterable[tuple[str, int]]) -> list[Further]:
    """Of runs that are to be started: their jobs, each with the priority that is asked for, 0 = that of the job."""
    asked = [(job, priority) for job, priority in starts if priority > 0]
    stored = await targets.definitions(t, sorted({job for job, _ in asked})) if asked else {}
    return [_priority(job) for job, priority in asked if job in stored and priority > stored[job].priority]


async def _of_job(t: Tx, job: JobSpec, old: Defined | None) -> list[Further]:
    """As far as the stored definition does not do the same."""
    found = []
    new = {key: value for key, value in job.labels.items() if old is None or old.labels.get(key) != value}
    for key, value in await targets.opening_labels(t, new) if new else ():
        why = f"the label {key}={value} starts triggers of others, or is what a webhook or an executor group is for"
        found.append(Further(action=Action.EDIT, target=Target(labels={key: value}), why=why, every=True))
    webhooks = {rule.webhook for rule in job.notify} - (old.webhooks if old else set())
    for name in await targets.closed_webhooks(t, webhooks, job.name, job.labels) if webhooks else ():
        why = f"the webhook {name} is for no label or name of this job"
        found.append(Further(action=Action.EDIT, target=EVERYTHING, why=why, every=True))
    # Whether or not this definition uses them: the next one could.
    for what in await targets.kept_for(t, job.name) if old is None else ():
        why = f"{what} is for a job of this name, which is new"
        found.append(Further(action=Action.EDIT, target=Target(job=job.name), why=why, every=True))
    if job.priority > max(0, old.priority if old else 0):
        found.append(_priority(job.name))
    return found


async def _shown(t: Tx, manifests: Sequence[Manifest]) -> list[Further]:
    """The jobs at whose ends triggers start others, for those by labels all that have them."""
    ends = [m.spec.on_run_end for m in manifests if isinstance(m.spec, TriggerSpec) and m.spec.on_run_end is not None]
    made = {m.name: Target(job=m.name, labels=m.spec.labels) for m in manifests if isinstance(m.spec, JobSpec)}
    names = {one.job for one in ends if one.job}
    shown: list[tuple[Target, bool]] = []
    for one in ends:
        if not one.job:
            shown.append((Target(labels=one.labels), True))
            names |= {*await run_lists.jobs_labelled(t, one.labels, limit=MAX_LABELLED)}
    known = {**await targets.find(t, "job", sorted(names)), **made}
    shown += [(known.get(name, Target(job=name)), name not in known) for name in sorted(names)]
    why = "a trigger shows the ends of other runs"
    return [Further(action=Action.VIEW, target=one, why=why, every=every) for one, every in shown]


def _priority(job: str) -> Further:
    why = f"a priority above 0 and above that of job {job} lets runs of others wait"
    return Further(action=Action.EDIT, target=EVERYTHING, why=why, every=True)
