"""What `toban_sync` and `toban sync` would do, before a site that has jobs already."""

from dataclasses import replace
from typing import Any

import pytest

from toban.client import AppliedManifest, EventTrigger, Job, Schedule
from toban.declaring.model import Declaration, DeclarationError, Place
from toban.declaring.sync import Plan, carry_out, lines, plan
from toban.django.declarations import CommandDeclaration
from toban.errors import InvalidRequestError, Mistake
from toban.jobs import FunctionDeclaration

HERE = Place(folder="/home/ada/shop", interpreter="/home/ada/venv/bin/python", settings="shop.settings", project="shop")
THERE = replace(HERE, folder="/srv/shop", interpreter="/srv/venv/bin/python")


def declaration(name: str, **more: Any) -> Declaration:
    return CommandDeclaration(
        command=name, name=name, description="", args=(), warm=False, payload={}, **{"job": {}, **more}
    )


class Site:
    """A site that has these declarations, from a sync at `THERE`; a client of it."""

    def __init__(self, *declared: Declaration, place: Place = THERE) -> None:
        self.applied: list[Any] = []
        self.refusal: InvalidRequestError | None = None
        self.stored: dict[str, list[dict[str, Any]]] = {"Job": [], "Schedule": [], "EventTrigger": []}
        for one in declared:
            for manifest in one.manifests(place):
                spec = {**manifest["metadata"], **manifest["spec"]}
                state = {"version": 1, "enabled": True, "status": "active", "job": one.name, "event_type": "order.paid"}
                self.stored[manifest["kind"]].append({"name": one.name, "spec": spec, **state})
        self.jobs, self.schedules = _Group(Job, self.stored["Job"]), _Group(Schedule, self.stored["Schedule"])
        self.triggers = _Group(EventTrigger, self.stored["EventTrigger"])

    def apply(self, manifests: list[Any], dry_run: bool = False) -> list[AppliedManifest]:
        if self.refusal:
            raise self.refusal
        if not dry_run:
            self.applied = manifests
        return [
            AppliedManifest(kind=one["kind"], name=one["metadata"]["name"], action="unchanged") for one in manifests
        ]


class _Group:
    def __init__(self, kind: Any, stored: list[dict[str, Any]]) -> None:
        self.kind, self.stored = kind, stored

    def list(self) -> Any:
        return iter([self.kind.from_json(one) for one in self.stored])


def planned(site: Site, *declared: Declaration, place: Place = HERE, named: tuple[str, ...] = ()) -> Plan:
    client: Any = site
    return plan(client, declared, place, named)


def places(found: Plan) -> list[tuple[str, str]]:
    steps = [one["spec"]["steps"][0] for one in found.manifests if one["kind"] == "Job"]
    return [(step["project"], step["interpreter"]) for step in steps]


def test_another_machine_changes_no_interpreter_and_no_folder() -> None:
    found = planned(Site(declaration("old")), declaration("new"), declaration("old"))
    assert places(found) == [(THERE.folder, THERE.interpreter)] * 2
    assert found.kept == {
        ("folder", THERE.folder): ["new", "old"],
        ("interpreter", THERE.interpreter): ["new", "old"],
    }


def test_what_a_person_names_is_changed() -> None:
    found = planned(Site(declaration("old")), declaration("old"), named=("interpreter",))
    assert places(found) == [(THERE.folder, HERE.interpreter)]
    assert list(found.kept) == [("folder", THERE.folder)]


def test_the_first_sync_of_a_project_takes_this_place() -> None:
    other = Site(declaration("old"), place=replace(THERE, project="other"))
    found = planned(other, declaration("new"))
    assert places(found) == [(HERE.folder, HERE.interpreter)] and not found.kept


def test_a_trigger_that_is_declared_no_more_is_disabled() -> None:
    trigger = {"event_type": "order.paid"}
    site = Site(*(declaration(name, trigger=trigger) for name in ("a", "b", "c")))
    found = planned(site, declaration("a", trigger=trigger), declaration("b"), declaration("c"))
    assert [one["metadata"]["name"] for one in found.orphan_triggers] == ["b", "c"]
    client: Any = site
    carry_out(client, found, prune=True)
    assert [(one["kind"], one["metadata"], one["spec"]) for one in site.applied[-2:]] == [
        ("EventTrigger", {"name": name}, {"job": name, **trigger, "enabled": False}) for name in ("b", "c")
    ]


def test_a_job_of_another_project_is_not_taken_over_by_its_name() -> None:
    site: Any = Site(declaration("clearsessions"), place=replace(THERE, project="blog"))
    with pytest.raises(
        DeclarationError,
        match=r"Job 'clearsessions' on the site is of project 'blog', and this is project 'shop'.*--take-over",
    ):
        planned(site, declaration("clearsessions"), declaration("other"))
    found = plan(site, [declaration("clearsessions")], HERE, (), take_over=True)
    assert [one["metadata"]["labels"] for one in found.manifests] == [{"toban-django": "shop"}]
    assert planned(site, declaration("other")).manifests


def test_what_a_person_has_made_is_not_taken_over_by_its_name() -> None:
    site: Any = Site(
        declaration("mail", schedule={"cron": "@daily"}), declaration("report", trigger={"event_type": "a"})
    )
    job = site.stored["Job"][0]
    del job["spec"]["labels"]
    site.stored["Schedule"][0].update(name="report", job="mail")
    site.stored["EventTrigger"][0].update(name="other", job="report")
    both = declaration("report", schedule={"cron": "@daily"}), declaration("other", trigger={"event_type": "a"})
    with pytest.raises(DeclarationError) as caught:
        planned(site, declaration("mail"), *both)
    assert [line.split(", and")[0] for line in str(caught.value).splitlines()] == [
        "command 'mail': Job 'mail' on the site is of no project",
        "command 'report': Schedule 'report' on the site is of the job 'mail'",
        "command 'other': EventTrigger 'other' on the site is of the job 'report'",
    ]
    assert planned(site, declaration("report")).manifests, "its schedule is not declared"
    client: Any = site
    assert plan(client, [declaration("mail"), *both], HERE, (), take_over=True).manifests


def test_a_refusal_names_the_command() -> None:
    site = Site()
    where, text = "manifests.2.spec.timezone", "is 'Mars/Base', which is no zone"
    detail = f"manifests.2: spec.timezone: {text}"
    site.refusal = InvalidRequestError(detail, code="MANIFEST_INVALID", mistakes=[Mistake(where, text)])
    with pytest.raises(DeclarationError) as caught:
        planned(site, declaration("a"), declaration("b", schedule={"cron": "@daily"}))
    assert str(caught.value) == f"command 'b': Schedule spec.timezone: {text}"


def test_a_mistake_of_all_jobs_is_one_line() -> None:
    site = Site()
    text = "there is no secret 'db'"
    mistakes = [Mistake(f"manifests.{number}.spec.secrets[0].name", text) for number in (0, 1)]
    site.refusal = InvalidRequestError("", code="MANIFEST_INVALID", mistakes=mistakes)
    with pytest.raises(DeclarationError, match=f"^command 'a', command 'b': Job spec.secrets.0..name: {text}$"):
        planned(site, declaration("a"), declaration("b"))


def test_what_is_of_another_module_is_no_orphan() -> None:
    rules: Any = {"schedule": {"cron": "0 7 * * *"}, "trigger": {"event_type": "order.paid"}}

    def function(module: str) -> Declaration:
        return FunctionDeclaration(
            callable=f"{module}:work", name=f"{module}-work", description="", warm=False, payload={}, job={}, **rules
        )

    site: Any = Site(*(function(name) for name in ("reports", "mail", "empty")))
    read = {"reports", "empty"}
    found = plan(site, [function("reports")], HERE, (), is_read=read.__contains__)
    assert found.orphans == ["empty-work"] and found.unread == ["mail"]
    assert [one["metadata"]["name"] for one in found.orphan_triggers] == ["empty-work"]
    [told] = [
        line
        for line in lines(found, HERE, {"folder": "", "interpreter": ""}, dry_run=False, prune=True)
        if "not imported" in line
    ]
    assert told.startswith("jobs of mail stay as they are")
