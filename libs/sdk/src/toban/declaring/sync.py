"""Brings the site in line with what a project declares: what would change, the differences, and the change."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toban.client import AppliedManifest, Client, Job
from toban.declaring.keys import LABEL, PROJECT_LABEL
from toban.declaring.model import Declaration, DeclarationError, Place
from toban.errors import InvalidRequestError, NotFoundError

REASON = "no longer declared by its project"
"""Of schedules that a sync has paused by --prune; declared again, they are resumed."""
# Earlier versions gave the other one.
_REASONS = (REASON, "no longer declared by the Django project")
_WHERE = re.compile(r"manifests\.(\d+)\.?(.*)")
# Fields of a Place that belong to the executors.
_ON_EXECUTORS = ("folder", "interpreter")

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a sync does. `diffs` has the lines of each object that is changed, `orphans` are schedules that are no longer declared.

    `orphan_triggers` are the manifests of triggers that are no longer declared. `kept` has the names of jobs whose folder or
    interpreter on the site is another one than here, and stays. `unread` are modules of active jobs of the project that were not imported.
    """

    manifests: Sequence[Manifest]
    changes: Sequence[AppliedManifest]
    diffs: Mapping[tuple[str, str], Sequence[str]]
    kept: Mapping[tuple[str, str], Sequence[str]]
    orphans: Sequence[str]
    orphan_triggers: Sequence[Manifest]
    resumed: Sequence[str]
    unread: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether all that is declared is on the site, and active."""
        return not self.resumed and all(one.action == "unchanged" for one in self.changes)


def plan(
    client: Client,
    declared: Sequence[Declaration],
    place: Place,
    named: Collection[str],
    *,
    take_over: bool = False,
    is_read: Callable[[str], bool] = lambda _: True,
) -> Plan:
    """Compares. `named`: the fields of `place` that a person has named; folder and interpreter of a job stay otherwise as the site has them.

    `is_read` is whether a module was imported, so that `declared` has all of its jobs. What is of another module is no orphan.
    Raises DeclarationError for what the site would refuse, and unless `take_over` for a job, schedule or trigger that is not of this project.
    """
    jobs, schedules, triggers = list(client.jobs.list()), list(client.schedules.list()), list(client.triggers.list())
    own = {job.name: job for job in jobs if job.labels.get(place.label) == place.project}
    if not take_over:
        _refuse_others(
            declared,
            place,
            jobs,
            [(one.name, one.job) for one in schedules],
            [(one.name, one.job) for one in triggers],
        )
    places, kept = _places(declared, place, named, own)
    made = [(one, manifest) for one in declared for manifest in one.manifests(places[one.name])]
    manifests = [manifest for _, manifest in made]
    try:
        changes = client.apply(manifests, dry_run=True) if manifests else []
    except InvalidRequestError as error:
        raise _of_commands(error, made) from None
    wanted = {(one["kind"], one["metadata"]["name"]): one for one in manifests}
    touched = [(one.kind, one.name) for one in changes if one.action != "unchanged"]
    # What is declared has the name of its job; a schedule or trigger with another name was made by a person.
    schedules = [one for one in schedules if one.job in own and one.name == one.job]
    triggers = [one for one in triggers if one.job in own and one.name == one.job and one.enabled]
    orphans = [one for one in schedules if ("Schedule", one.name) not in wanted and one.status != "paused"]
    orphan_triggers = [one for one in triggers if ("EventTrigger", one.name) not in wanted]
    names = {one.job for one in orphans} | {one.job for one in orphan_triggers}
    modules = {name: _module_of(own[name]) for name in names}
    unread = {module for module in modules.values() if not is_read(module)}
    return Plan(
        manifests=manifests,
        changes=changes,
        diffs={key: _diff(_current(client, *key), _flat(wanted[key])) for key in touched},
        kept=kept,
        orphans=[one.name for one in orphans if modules[one.job] not in unread],
        orphan_triggers=[one.manifest for one in orphan_triggers if modules[one.job] not in unread],
        resumed=[one.name for one in schedules if ("Schedule", one.name) in wanted and one.status_reason in _REASONS],
        unread=sorted(unread),
    )


def carry_out(client: Client, found: Plan, *, prune: bool) -> None:
    """Applies all manifests or none; then ends what is no longer declared, with `prune`, and resumes what is declared again."""
    disabled = [{**one, "spec": {**one["spec"], "enabled": False}} for one in found.orphan_triggers if prune]
    if manifests := [*found.manifests, *disabled]:
        client.apply(manifests)
    for name in found.resumed:
        client.schedules.resume(name, reason="declared again by its project")
    for name in found.orphans if prune else ():
        client.schedules.pause(name, reason=REASON)


def lines(found: Plan, place: Place, remedy: Mapping[str, str], *, dry_run: bool, prune: bool) -> Iterator[str]:
    """What a person reads: each change with its differences. `remedy` is how folder and interpreter are named."""
    would = "would be " if dry_run else ""
    for one in found.changes:
        kept = one.action == "unchanged"
        yield f"{one.kind} {one.name}: {one.action if kept else would + one.action}"
        yield from (f"  {line}" for line in found.diffs.get((one.kind, one.name), ()))
    for (name, value), jobs in found.kept.items():
        here = getattr(place, name)
        yield f"{name} {value}: as on the site, for {', '.join(jobs)}; here it is {here}; {remedy[name]} changes it"
    for name in found.resumed:
        yield f"Schedule {name}: {would}resumed, it is declared again"
    orphans = [("Schedule", name, "active", "pause") for name in found.orphans]
    orphans += [("EventTrigger", one["metadata"]["name"], "enabled", "disable") for one in found.orphan_triggers]
    for kind, name, state, verb in orphans:
        yield (
            f"{kind} {name}: {would}{verb}d, it is no longer declared"
            if prune
            else f"{kind} {name}: is no longer declared and stays {state}; --prune {verb}s it"
        )
    if prune and found.unread:
        yield (
            f"jobs of {', '.join(found.unread)} stay as they are, because these modules were not imported; name each one that is still there; "
            "`toban schedule pause` and `toban trigger delete` end those of one that is gone"
        )
    if found.is_empty and found.changes and not orphans:
        yield "nothing to change"


def _refuse_others(
    declared: Sequence[Declaration],
    place: Place,
    jobs: Sequence[Job],
    schedules: Sequence[tuple[str, str]],
    triggers: Sequence[tuple[str, str]],
) -> None:
    """What has the name of a command, such as clearsessions, and is of another project or of a person. Pairs: name, and job that is started."""
    others = {
        ("Job", job.name): next(
            (f"of project {job.labels[label]!r}" for label in (LABEL, PROJECT_LABEL) if label in job.labels),
            "of no project",
        )
        for job in jobs
        if job.labels.get(place.label) != place.project
    }
    for kind, found in (("Schedule", schedules), ("EventTrigger", triggers)):
        others |= {(kind, name): f"of the job {job!r}" for name, job in found if name != job}
    lines = [
        f"{one.title}: {key[0]} {one.name!r} on the site is {others[key]}, and this is project {place.project!r}; "
        "give it another name, or take it over with --take-over"
        for one in declared
        for key in [(manifest["kind"], one.name) for manifest in one.manifests(place)]
        if key in others
    ]
    if lines:
        raise DeclarationError("\n".join(lines))


def _places(
    declared: Sequence[Declaration], place: Place, named: Collection[str], own: Mapping[str, Job]
) -> tuple[Mapping[str, Place], Mapping[tuple[str, str], Sequence[str]]]:
    """The place of each job, and what of it is as on the site: this machine may be another one than the executors.

    A new job is where all jobs of its project are, if they are at one place.
    """
    places, kept = {one.name: place for one in declared}, dict[tuple[str, str], list[str]]()
    for name in _ON_EXECUTORS:
        if name in named:
            continue
        stored = {job.name: value for job in own.values() if (value := _place_of(job).get(name, ""))}
        for job in places:
            known = {stored[job]} if job in stored else set(stored.values())
            if len(known) == 1 and known != {getattr(place, name)}:
                [value] = known
                change: dict[str, Any] = {name: value}
                places[job] = replace(places[job], **change)
                kept.setdefault((name, value), []).append(job)
    return places, kept


def _place_of(job: Job) -> Mapping[str, str]:
    """Folder and interpreter of the step of a job, as the site has them."""
    for step in job.spec.get("steps", ()):
        if step.get("type") == "django":
            return {"folder": step["project"], "interpreter": step["interpreter"]}
        if step.get("type") == "python":
            return {"folder": next(iter(step.get("python_path", ())), ""), "interpreter": step.get("interpreter", "")}
    return {}


def _module_of(job: Job) -> str:
    """Where its function is; empty for a command of Django."""
    return next(
        (str(step["callable"]).partition(":")[0] for step in job.spec.get("steps", ()) if "callable" in step), ""
    )


def _of_commands(error: InvalidRequestError, made: Sequence[tuple[Declaration, Manifest]]) -> DeclarationError:
    """The mistakes with the commands that they are of, in place of the numbers of manifests; one of all jobs of the project is one line."""
    commands: dict[str, list[str]] = {}
    for mistake in error.mistakes:
        found = _WHERE.fullmatch(mistake.where)
        if found is None or int(found[1]) >= len(made):
            commands[f"{mistake.where}: {mistake.message}"] = []
            continue
        declaration, manifest = made[int(found[1])]
        commands.setdefault(f"{manifest['kind']} {found[2]}: {mistake.message}", []).append(declaration.title)
    lines = [f"{', '.join(names)}: {text}" if names else text for text, names in commands.items()]
    return DeclarationError("\n".join(lines) or str(error))


def _current(client: Client, kind: str, name: str) -> Mapping[str, Any]:
    get = {"Job": client.jobs.get, "Schedule": client.schedules.get, "EventTrigger": client.triggers.get}[kind]
    try:
        return _flat(get(name).manifest)
    except NotFoundError:
        return {}


def _flat(manifest: Manifest) -> dict[str, Any]:
    """Metadata beside the rest, and each step with a name, as the site gives it."""
    spec = dict(manifest["spec"])
    if "steps" in spec:
        spec["steps"] = [{"id": f"step-{number}", **step} for number, step in enumerate(spec["steps"], start=1)]
    return {**manifest["metadata"], **spec}


def _diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Lines with `-` and `+` before them, with two lines around each.

    >>> _diff({"cron": "0 7 * * *"}, {"cron": "0 8 * * *"})
    [' {', '-  "cron": "0 7 * * *"', '+  "cron": "0 8 * * *"', ' }']
    """
    old, new = (json.dumps(one, indent=2, sort_keys=True).splitlines() if one else [] for one in (before, after))
    return [line for line in difflib.unified_diff(old, new, n=2, lineterm="") if line[:3] not in ("---", "+++", "@@ ")]
