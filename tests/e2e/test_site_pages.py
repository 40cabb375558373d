"""Every page of the site, in each theme, language and width: no complaint of the browser, nothing that axe-core finds, no text left in English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.browser import axe_source, browsing, find_browser
from toban_testing.sample_company import manifest
from toban_testing.site_checks import LANGUAGES, addresses, texts, untranslated
from toban_testing.site_client import SiteClient, signed_in
from toban_testing.stack_fixtures import running_stack

ROOT = Path(__file__).resolve().parents[2]
# By the name of the view. An address of its own for each form that one view has.
PAGES = {
    "account.show": "/account",
    "api_docs.show": "/api/docs",
    "archive.ask_run": "/archive/run",
    "archive.ask_verify": "/archive/verify",
    "archive.show": "/archive",
    "audit.listed": "/audit",
    "audit.verify": "/audit/verify?check=1",
    "bulk_actions.ask_cancel": "/runs/cancel?job=walk-waits",
    "bulk_actions.ask_rerun": "/runs/rerun?job=walk-fails",
    "cluster.show": "/cluster",
    "cluster_actions.ask_demote": "/cluster/demote",
    "cluster_actions.ask_detach": "/executors/{executor}/detach",
    "cluster_actions.ask_drain": "/executors/{executor}/drain",
    "cluster_actions.ask_undrain": "/executors/{executor}/undrain",
    "dashboard.show": "/",
    "definition_edit.job": "/jobs/walk-fails/edit",
    "definition_edit.new_job": "/new/job",
    "definition_edit.new_schedule": "/new/schedule",
    "definition_edit.schedule": "/schedules/walk-often/edit",
    "events.ask_emit": "/events/emit",
    "events.listed": "/events",
    "events.trigger": "/triggers/walk-trigger",
    "events.triggers": "/triggers",
    "executors.show": "/executors",
    "groups.ask": "/groups/walk-team/join /groups/walk-team/leave /groups/walk-team/delete",
    "groups.ask_add": "/new/group",
    "groups.listed": "/groups",
    "groups.show": "/groups/walk-team",
    "incoming.ask": "/incoming/walk-hook/rotate /incoming/walk-hook/remove",
    "incoming.ask_change": "/incoming/walk-hook/change",
    "incoming.ask_new": "/new/hook",
    "incoming.ask_test": "/incoming/walk-hook/test",
    "incoming.listed": "/incoming",
    "incoming.show": "/incoming/walk-hook",
    "invites.ask_add": "/new/invite",
    "invites.ask_delete": "/executors/invites/{invite}/delete",
    "invites.listed": "/executors/invites",
    "job_actions.ask_delete": "/jobs/walk-fails/delete",
    "job_actions.ask_disable": "/jobs/walk-fails/disable",
    "job_actions.ask_enable": "/jobs/walk-fails/enable",
    "job_actions.ask_pause": "/schedules/walk-often/pause",
    "job_actions.ask_resume": "/schedules/walk-often/resume",
    "job_actions.ask_run": "/jobs/walk-waits/run",
    "jobs.listed": "/jobs",
    "jobs.show": "/jobs/walk-fails /jobs/walk-waits",
    "jobs.versions": "/jobs/walk-fails/versions",
    "limits.ask": "/limits/set?name={limit} /limits/open?name={limit} /limits/signal?name={limit}",
    "limits.listed": "/limits",
    "limits.show": "/limits/one?name={limit}",
    "load.day": "/load/days/2027-03-28",
    "load.month": "/load/month",
    "load.show": "/load",
    "log_view.show": "/runs/{failed}/log /runs/{failed}/log?find=line",
    "rules.ask_add": "/new/rule",
    "rules.ask_remove": "/rules/{rule}/remove",
    "rules.listed": "/rules?user=walk-person&action=run",
    "run_actions.ask_cancel": "/runs/{running}/cancel",
    "run_actions.ask_declare_lost": "/runs/{running}/declare-lost",
    "run_actions.ask_kill": "/runs/{running}/kill",
    "run_actions.ask_note": "/runs/{failed}/note",
    "run_actions.ask_rerun": "/runs/{failed}/rerun",
    "runs.listed": "/runs /runs?q=state:failed /runs?q=nothing",
    "runs.show": "/runs/{failed} /runs/{running}",
    "schedules.listed": "/schedules",
    "schedules.show": "/schedules/walk-often",
    "secrets.ask_add": "/new/secret",
    "secrets.ask_delete": "/secrets/walk-secret/delete",
    "secrets.ask_set": "/secrets/walk-secret/set",
    "secrets.listed": "/secrets",
    "settings.ask_change": "/settings/leader_tick_seconds/change",
    "settings.listed": "/settings",
    "sign_in.ask": "/sign-in",
    "sign_in.first": "/first",
    "spread.show": "/load/spread?minute=2030-01-01T00:00",
    "timeline.show": "/runs/timeline",
    "users.ask": "/users/walk-person/join /users/walk-person/password /users/walk-person/delete",
    "users.ask_add": "/new/user",
    "users.ask_role": "/users/walk-person/role",
    "users.listed": "/users",
    "users.show": "/users/walk-person",
    "webhooks.ask": "/webhooks/walk-pager/test /webhooks/walk-pager/secret /webhooks/walk-pager/remove",
    "webhooks.ask_change": "/webhooks/walk-pager/change",
    "webhooks.ask_new": "/new/webhook",
    "webhooks.listed": "/webhooks",
    "webhooks.show": "/webhooks/walk-pager",
}
NO_PAGES = {
    "static": "a file",
    "audit.export": "lines of JSON",
    "find.show": "data for a script",
    "incoming.short": "leads to another page",
    "live.stream": "events",
    "log.download": "a text",
    "log.one_line": "a text",
    "log.stream": "events",
    "log_view.lines": "data for a script",
    "log_view.search": "data for a script",
    "oidc.begin": "leads to the provider",
    "oidc.finish": "leads to another page",
}
SIGNED_OUT = ("/sign-in", "/first")
WIDTHS = (390, 1280)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Its jobs and schedules are on every list."""
    home = tmp_path_factory.mktemp("pages") / "home"
    with running_stack(home, coordinators=1, executors=1, admin_webs=1) as made:
        yield made


def filled(stack: Stack, admin: AdminClient, site: SiteClient) -> dict[str, Any]:
    """What pages need to show something; the names and numbers in their addresses."""
    lines = "import sys; [print('line', n, flush=True) for n in range(30)]; sys.exit(3)"
    admin.apply(
        manifest("Job", "walk-fails", steps=[{"argv": ["python3", "-c", lines]}], allow_shell=True),
        manifest(
            "Job",
            "walk-waits",
            steps=[{"argv": ["sleep", "900"]}],
            concurrency={"limit": 2},
            payload_schema={"type": "object", "properties": {"customer": {"type": "string"}}},
        ),
        manifest("Schedule", "walk-often", job="walk-fails", cron="*/5 * * * *", timezone="Europe/Zurich"),
        *(manifest("Schedule", f"walk-daily-{n}", job="walk-waits", daily_at="03:00") for n in range(12)),
        manifest("EventTrigger", "walk-trigger", event_type="walk.event", job="walk-waits"),
    )
    [failed, *_], [running] = admin.start("walk-fails", count=12), admin.start("walk-waits")
    admin.until_ended(failed)
    admin.until(lambda: admin.run(running).state == "RUNNING", of="the run")
    password, reason = "correct horse battery", {"reason": "for the pages"}
    for action, fields in (
        ("/events/emit", {"type": "walk.event", "payload": "{}"}),
        (
            "/new/webhook",
            {"name": "walk-pager", "url": "https://alerts.example.com/", "form": "generic", "state": "FAILED"},
        ),
        ("/new/hook", {"name": "walk-hook", "event_type": "walk.hooked", "rate": "60", "kind": "standard"}),
        ("/new/user", {"name": "walk-person", "role": "viewer", "password": password, "again": password}),
        ("/new/group", {"name": "walk-team"}),
        ("/users/walk-person/join", {"group": "walk-team"}),
        ("/new/rule", {"kind": "group", "name": "walk-team", "effect": "allow", "role": "operator"}),
        ("/new/invite", {"group": "default", "uses": "1", "hours": "1"}),
        ("/new/secret", {"name": "walk-secret", "value": "a value of this test", "for": "all"}),
    ):
        site.submit(action, action, **fields, **reason)
    [rule, *_] = re.findall(r"/rules/(\d+)/remove", site.get("/rules"))
    [invite] = re.findall(r"/executors/invites/(\d+)/delete", site.get("/executors/invites"))
    limit, executor = "job:walk-waits", admin.cluster().executors[0].worker_id
    return {"failed": failed, "running": running, "rule": rule, "invite": invite, "limit": limit, "executor": executor}


def test_every_view_is_opened_or_no_page() -> None:
    views = {rule.endpoint for rule in addresses().iter_rules() if "GET" in (rule.methods or ())}
    assert views == {*PAGES, *NO_PAGES}


def test_every_page_is_in_the_guide_for_operators() -> None:
    guide = (ROOT / "docs" / "operations-ui.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split(" | ")[0] for line in guide.splitlines() if line.startswith("| `/"))
    places = {"N": r"\{\w+\}", "ID": r"\{executor\}", "NAME": r"walk-[a-z-]+|leader_tick_seconds", "DAY": r"[0-9-]+"}
    known = [
        re.compile(re.sub(r"\b(NAME|DAY|ID|N)\b", lambda found: f"(?:{places[found[0]]})", one.partition("?")[0]))
        for one in re.findall(r"`(/[^`]*)`", rows)
    ]
    paths = {path.partition("?")[0] for one in PAGES.values() for path in one.split()}
    assert sorted(path for path in paths if not any(one.fullmatch(path) for one in known)) == []


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium")
def test_every_page_in_each_theme_language_and_width(stack: Stack, admin: AdminClient, tmp_path: Path) -> None:
    axe, known, site = axe_source(), texts(), signed_in(stack)
    given = filled(stack, admin, site)
    paths = [path.format_map(given) for one in PAGES.values() for path in one.split()]
    # Before the browser has the cookie.
    paths.sort(key=lambda path: path not in SIGNED_OUT)
    findings: list[str] = []
    with browsing(tmp_path / "profile") as new_page:
        page = new_page()
        for number, path in enumerate(paths):
            for cookie in () if path in SIGNED_OUT else site.cookies:
                page.set_cookie(site.base, cookie.name, cookie.value or "")
            for visit in range(len(LANGUAGES)):
                language, width = LANGUAGES[(number + visit) % 3], WIDTHS[(number + visit) % 2]
                dark = bool((number // 2 + visit) % 2)
                earlier = len(page.complaints)
                page.look(width=width, dark=dark, language=language)
                page.open(site.base + path)
                found = [*page.axe(axe), *untranslated(page, known, language)]
                if page.run("document.documentElement.scrollWidth") > width:
                    found.append("wider than the window")
                look = f"{path} ({language}, {width}, {'dark' if dark else 'light'})"
                findings += [f"{look}: {one}" for one in [*found, *page.complaints[earlier:]]]
    assert findings == [], "\n".join(findings)
