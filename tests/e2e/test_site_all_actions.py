"""Every action of the site, done once by a person in a browser on a running stack; and what opens over a page.

An action without a fact has it in `test_site_actions.py` or `test_site_load.py`.
"""

from __future__ import annotations

import itertools
import json
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import hooks_pb2, hooks_pb2_grpc, joining_pb2, joining_pb2_grpc, webhooks_pb2, webhooks_pb2_grpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.browser import browsing, find_browser
from toban_testing.oidc_provider import CLIENT, SECRET, Provider
from toban_testing.sample_company import manifest
from toban_testing.site_checks import LANGUAGES, addresses
from toban_testing.site_client import PASSWORD, USER, SiteClient
from toban_testing.site_visitor import Act, Visitor
from toban_testing.stack_fixtures import executor_name, running_stack

OTHER_PASSWORD = "another horse battery"
BULK = "main:not(:has(form.action)) .big[role=status]"


def job(admin: AdminClient, name: str) -> pb.Job:
    found: pb.Job = admin.call(rpc.JobReaderStub, "GetJob", pb.GetJobRequest(name=name))
    return found


def schedule(admin: AdminClient, name: str) -> pb.Schedule:
    found: pb.Schedule = admin.call(rpc.JobReaderStub, "GetSchedule", pb.GetScheduleRequest(name=name))
    return found


def limit(admin: AdminClient) -> pb.Limit:
    found: pb.Limit = admin.call(rpc.OperationsStub, "GetLimit", pb.GetLimitRequest(name="job:walk-waits")).limit
    return found


def user(admin: AdminClient) -> pb.User:
    [found] = [
        one
        for one in admin.call(rpc.AccountsStub, "ListUsers", pb.ListUsersRequest()).users
        if one.name == "walk-person"
    ]
    return found


def tokens(admin: AdminClient) -> list[pb.ApiToken]:
    return list(admin.call(rpc.AccountsStub, "ListTokens", pb.ListTokensRequest(user=USER)).tokens)


def signs_in(admin: AdminClient, password: str) -> bool:
    """Whether this is the person's password now."""
    try:
        admin.call(rpc.AccountsStub, "Authenticate", pb.AuthenticateRequest(user=USER, password=password))
    except TobanError:
        return False
    return True


def hooks(admin: AdminClient) -> list[hooks_pb2.Hook]:
    return list(admin.call(hooks_pb2_grpc.HooksStub, "ListHooks", hooks_pb2.ListHooksRequest()).hooks)


def webhooks(admin: AdminClient) -> list[webhooks_pb2.Webhook]:
    request = webhooks_pb2.ListWebhooksRequest()
    return list(admin.call(webhooks_pb2_grpc.WebhooksStub, "ListWebhooks", request).webhooks)


def invites(admin: AdminClient) -> list[joining_pb2.Invite]:
    return list(admin.call(joining_pb2_grpc.InvitesStub, "ListInvites", joining_pb2.ListInvitesRequest()).invites)


def setting(admin: AdminClient) -> str:
    found = admin.call(rpc.OperationsStub, "ListSettings", pb.ListSettingsRequest()).settings
    return next(one.value_json for one in found if one.name == "skip_late_runs_after_seconds")


def events(admin: AdminClient, run_id: int) -> set[str]:
    return {event.type for event in admin.run(run_id).events}


NAMED = {"password": PASSWORD, "again": PASSWORD}
GATE = (
    Act(at="/first#{link}", path="/first", fields={"user": USER, **NAMED}, shows=".menu.user .who"),
    Act(at="/account", path="/sign-out", shows=".gate #user"),
    Act(at="/sign-in", path="/sign-in", fields={"user": USER, "password": PASSWORD}, shows=".menu.user .who"),
)
PERSON, TEAM = "/users/walk-person", "/groups/walk-team"
PEOPLE = (
    Act(at="/users", path="/new/user", fields={"name": "walk-person", "role": "viewer", **NAMED}),
    Act(at=PERSON, path=f"{PERSON}/role", fields={"role": "operator"}),
    Act(at="/groups", path="/new/group", fields={"name": "walk-team"}),
    Act(
        at=PERSON,
        path=f"{PERSON}/join",
        fields={"group": "walk-team"},
        fact=lambda a, _: user(a).groups == ["walk-team"],
    ),
    Act(at=PERSON, path=f"{TEAM}/leave", fact=lambda a, _: not user(a).groups),
    Act(at=TEAM, path=f"{TEAM}/join", fields={"user": "walk-person"}, fact=lambda a, _: user(a).groups),
    Act(
        at="/rules",
        path="/new/rule",
        fields={"kind": "group", "name": "walk-team", "role": "operator", "labels": "team=walk"},
    ),
    Act(at=TEAM, path="/rules/{}/remove"),
    Act(at=PERSON, path=f"{PERSON}/password", fields=dict.fromkeys(NAMED, OTHER_PASSWORD)),
    Act(at=PERSON, path=f"{PERSON}/link", fields={"subject": "walk-1"}, fact=lambda a, _: user(a).identities),
    Act(at=PERSON, path=f"{PERSON}/unlink", fact=lambda a, _: not user(a).identities),
    Act(at=PERSON, path=f"{PERSON}/end-sessions"),
    Act(at=PERSON, path=f"{PERSON}/disable", fact=lambda a, _: not user(a).enabled),
    Act(at=PERSON, path=f"{PERSON}/enable", fact=lambda a, _: user(a).enabled),
    Act(at=TEAM, path=f"{TEAM}/delete"),
    Act(at=PERSON, path=f"{PERSON}/delete"),
    Act(at="/account", path="/account/tokens", fields={"name": "walk-token"}, fact=lambda a, _: tokens(a)),
    Act(at="/account", path="/account/tokens/{}/revoke", fact=lambda a, _: all(one.revoked for one in tokens(a))),
    Act(at="/account", path="/account/sessions/{}/end"),
    Act(
        at="/account",
        path="/account/password",
        fields={"current": PASSWORD, **dict.fromkeys(NAMED, OTHER_PASSWORD)},
        fact=lambda a, _: signs_in(a, OTHER_PASSWORD),
    ),
    Act(
        at="/secrets", path="/new/secret", fields={"name": "walk-secret", "value": "a value of this test", "for": "all"}
    ),
    Act(at="/secrets", path="/secrets/walk-secret/set", fields={"value": "another value"}),
    Act(at="/secrets", path="/secrets/walk-secret/delete"),
)
HOOK, PAGER = "/incoming/walk-hook", "/webhooks/walk-pager"
FLOWS = (
    Act(at="/events", path="/events/emit", fields={"type": "walk.event", "payload": '{"n": 1}'}),
    Act(at="/incoming", path="/new/hook", fields={"name": "walk-hook", "event_type": "walk.hooked"}),
    Act(at=HOOK, path=f"{HOOK}/change", fields={"rate": "60"}, fact=lambda a, _: hooks(a)[0].rate_per_minute == 60),
    Act(at=HOOK, path=f"{HOOK}/test", fields={"payload": '{"n": 1}'}),
    Act(at=HOOK, path=f"{HOOK}/rotate", fact=lambda a, _: hooks(a)[0].secrets == 2),
    Act(at=HOOK, path=f"{HOOK}/drop", fact=lambda a, _: hooks(a)[0].secrets == 1),
    Act(at=HOOK, path=f"{HOOK}/disable", fact=lambda a, _: not hooks(a)[0].enabled),
    Act(at=HOOK, path=f"{HOOK}/enable", fact=lambda a, _: hooks(a)[0].enabled),
    Act(at=HOOK, path=f"{HOOK}/remove", fact=lambda a, _: not hooks(a)),
    Act(at="/webhooks", path="/new/webhook", fields={"name": "walk-pager", "url": "http://127.0.0.1:9/"}),
    Act(at=PAGER, path=f"{PAGER}/change", fields={"jobs": "walk-waits"}, fact=lambda a, _: webhooks(a)[0].jobs),
    Act(at=PAGER, path=f"{PAGER}/secret"),
    Act(at=PAGER, path=f"{PAGER}/test", fact=lambda a, _: webhooks(a)[0].pending),
    Act(at=PAGER, path=f"{PAGER}/redeliver"),
    Act(at=PAGER, path=f"{PAGER}/disable", fact=lambda a, _: not webhooks(a)[0].enabled),
    Act(at=PAGER, path=f"{PAGER}/enable", fact=lambda a, _: webhooks(a)[0].enabled),
    Act(at=PAGER, path=f"{PAGER}/remove", fact=lambda a, _: not webhooks(a)),
)
MADE = json.dumps(manifest("Job", "walk-made", steps=[{"argv": ["/bin/true"]}], timeout_seconds=60))
CHECKED = "form:has(#checked:not([aria-busy]) [name=seen])"
LIMIT = "/limits/one?name=job:walk-waits"
DEFINITIONS = (
    Act(
        at="/jobs",
        path="/new/job",
        fields={"manifest": MADE},
        ready=CHECKED,
        fact=lambda a, _: job(a, "walk-made").version == 1,
    ),
    Act(
        at="/jobs/walk-made",
        path="/jobs/walk-made/edit",
        fields={"manifest": MADE.replace("60", "90")},
        ready=CHECKED,
        fact=lambda a, _: job(a, "walk-made").version == 2,
    ),
    Act(
        at="/schedules",
        path="/new/schedule",
        fields={"name": "walk-made", "job": "walk-made", "kind": "daily", "daily_at": "04:00"},
        ready=CHECKED,
        fact=lambda a, _: schedule(a, "walk-made").job == "walk-made",
    ),
    Act(
        at="/schedules/walk-made",
        path="/schedules/walk-made/edit",
        fields={"daily_at": "05:00"},
        ready=CHECKED,
        fact=lambda a, _: "05:00" in schedule(a, "walk-made").rule,
    ),
    Act(
        at="/schedules/walk-made",
        path="/schedules/walk-made/pause",
        fact=lambda a, _: schedule(a, "walk-made").status == "paused",
    ),
    Act(
        at="/schedules/walk-made",
        path="/schedules/walk-made/resume",
        fact=lambda a, _: schedule(a, "walk-made").status == "active",
    ),
    Act(at="/jobs/walk-made", path="/jobs/walk-made/disable", fact=lambda a, _: not job(a, "walk-made").enabled),
    Act(at="/jobs/walk-made", path="/jobs/walk-made/enable", fact=lambda a, _: job(a, "walk-made").enabled),
    Act(at="/jobs/walk-made", path="/jobs/walk-made/run", fact=lambda a, _: any(a.runs(job="walk-made"))),
    Act(
        at="/jobs/walk-made",
        path="/jobs/walk-made/delete",
        fields={"with_schedules": "1", "cancel_runs": "1"},
        fact=lambda a, _: (
            "walk-made" not in {one.name for one in a.call(rpc.JobReaderStub, "ListJobs", pb.ListJobsRequest()).jobs}
        ),
    ),
    Act(at="/load?minute={minute}", path="/load/spread"),
    Act(at=LIMIT, path="/limits/set", fields={"value": "3"}, fact=lambda a, _: limit(a).limit == 3),
    Act(
        at=LIMIT,
        path="/limits/signal",
        fields={"level": "soft", "seconds": "600"},
        fact=lambda a, _: limit(a).signal == "soft",
    ),
    Act(at=LIMIT, path="/limits/open", fact=lambda a, _: limit(a).breaker == "open"),
    Act(at=LIMIT, path="/limits/close", fact=lambda a, _: limit(a).breaker != "open"),
    Act(at=LIMIT, path="/limits/reset", fact=lambda a, _: limit(a).source != "operator"),
    Act(
        at="/settings",
        path="/settings/skip_late_runs_after_seconds/change",
        fields={"value": "86400"},
        fact=lambda a, _: float(setting(a)) == 86400,
    ),
)
RUNS = (
    Act(at="/runs/{failed}", path="/runs/{failed}/note", fact=lambda a, known: "note" in events(a, known["failed"])),
    Act(at="/runs/{failed}", path="/runs/{failed}/rerun", fact=lambda a, known: a.run(known["failed"]).reruns),
    Act(
        at="/runs/{first}",
        path="/runs/{first}/cancel",
        fact=lambda a, known: a.run(known["first"]).HasField("cancel_requested_at"),
    ),
    Act(
        at="/runs/{second}",
        path="/runs/{second}/kill",
        fact=lambda a, known: a.run(known["second"]).HasField("cancel_requested_at"),
    ),
    Act(at="/runs?job=walk-fails&state=FAILED", path="/runs/rerun", shows=BULK),
    Act(
        at="/runs?job=walk-waits",
        path="/runs/cancel",
        shows=BULK,
        fact=lambda a, known: all(one.HasField("cancel_requested_at") for one in a.runs(job="walk-waits")),
    ),
)
CLUSTER = (
    Act(at="/cluster", path="/cluster/demote"),
    Act(
        at="/executors", path="/executors/{}/drain", fact=lambda a, _: any(one.drained for one in a.cluster().executors)
    ),
    Act(
        at="/executors",
        path="/executors/{}/undrain",
        fact=lambda a, _: not any(one.drained for one in a.cluster().executors),
    ),
    Act(at="/executors", path="/executors/{}/detach"),
    Act(at="/executors/invites", path="/new/invite", fact=lambda a, _: [one.status for one in invites(a)] == ["good"]),
    Act(
        at="/executors/invites",
        path="/executors/invites/{}/delete",
        fact=lambda a, _: not invites(a),
    ),
    Act(at="/archive", path="/archive/run"),
    # A day without archived objects: neither good nor bad.
    Act(at="/archive/verify?day=2026-01-01", path="/archive/verify", shows="main .message[role=status]"),
)
LOST = (
    Act(
        at="/runs/{orphan}",
        path="/runs/{orphan}/declare-lost",
        fact=lambda a, known: a.run(known["orphan"]).state != "ORPHANED",
    ),
)
ACTIONS = (*GATE, *PEOPLE, *FLOWS, *DEFINITIONS, *RUNS, *CLUSTER, *LOST)
NO_ACTIONS = {"hooks.receive": "of another system", "joining.join": "of a machine"}
# What opens over a page or in it: the page, and the script that opens it.
OPENED = {
    "the palette": ("/", "document.querySelector('[data-open-palette]').click()", "#palette[open] input:focus"),
    "what the palette found": (
        "/",
        "document.querySelector('[data-open-palette]').click(); const typed = document.getElementById('palette-text'); typed.value = 'walk-waits';"
        "typed.dispatchEvent(new Event('input'))",
        "#palette-found a[href='/jobs/walk-waits'][aria-selected=true]",
    ),
    "the keys": ("/jobs", "document.querySelector('[data-open-keys]').click()", "#keys[open]"),
    "the menu of a person": ("/jobs", "document.querySelector('.menu.user summary').click()", ".menu.user[open]"),
    "the menu of pages": ("/jobs", "document.querySelector('.menu.pages summary').click()", ".menu.pages[open]"),
    "a line of filters": (
        "/runs",
        "const line = document.getElementById('f-line'); line.focus(); line.value = 'state:failed jo'; line.dispatchEvent(new Event('input'))",
        "#f-line:focus",
    ),
    "a saved view": (
        "/runs?state=FAILED",
        "document.getElementById('view-name').value = 'failures'; document.querySelector('#views form button').click()",
        "#views li a",
    ),
    **{
        f"the folds of {path}": (
            path,
            "for (const one of document.querySelectorAll('main details')) one.open = true",
            "main details[open]",
        )
        for path in ("/runs", "/runs/{failed}", "/jobs/walk-waits", "/new/schedule", "/executors", "/api/docs")
    },
}


def action(rule: Any, values: Mapping[str, Any]) -> str:
    """The view, and which of its actions where one view has several."""
    return " ".join([rule.endpoint, *([str(values["verb"])] if "verb" in values else [])])


def test_every_action_is_done_or_no_action_of_a_person() -> None:
    known = addresses()
    wanted = set()
    for rule in known.iter_rules():
        if "POST" in (rule.methods or ()):
            verbs = getattr(rule._converters.get("verb"), "items", ())
            wanted |= {action(rule, {"verb": verb}) for verb in verbs} or {action(rule, {})}
    finder = known.bind("site")
    paths = [one.path.replace("{}", "1").format_map(defaultdict(lambda: "1")) for one in ACTIONS]
    done = [action(*finder.match(path, method="POST", return_rule=True)) for path in paths]
    assert wanted == {*done, *NO_ACTIONS}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    made = Provider()
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Stack]:
    """One of its executors is stopped, its leader is demoted, and people sign in with a provider, too."""
    home = tmp_path_factory.mktemp("actions")
    secret = home / "client-secret"
    secret.write_text(SECRET)
    environment = {
        "SCHEDULER_OIDC_ISSUER": provider.issuer,
        "SCHEDULER_OIDC_CLIENT_ID": CLIENT,
        "SCHEDULER_OIDC_CLIENT_SECRET_FILE": str(secret),
        "SCHEDULER_WEBHOOK_ALLOW": "127.0.0.1",
    }
    with running_stack(home / "home", admin_webs=1, environment=environment) as made:
        yield made


def prepared(admin: AdminClient) -> dict[str, Any]:
    """What there must be to act on; the numbers and times in the addresses."""
    coming = pb.GetComingLoadRequest(names=50)
    # Far enough away that nothing fires during the test.
    later = admin.call(rpc.JobReaderStub, "GetComingLoad", coming).begin.ToDatetime() + timedelta(hours=12)
    admin.apply(
        manifest("Job", "walk-fails", steps=[{"argv": ["python3", "-c", "exit(3)"]}], allow_shell=True),
        manifest("Job", "walk-waits", steps=[{"argv": ["sleep", "900"]}], concurrency={"limit": 3}),
        manifest("Job", "walk-goes-on", steps=[{"argv": ["sleep", "900"]}], on_lease_loss="continue", idempotent=True),
        *(manifest("Schedule", f"walk-daily-{n}", job="walk-waits", daily_at=f"{later:%H:%M}") for n in range(12)),
    )
    admin.until(lambda: admin.call(rpc.JobReaderStub, "GetComingLoad", coming).crowded, of="the crowded minute")
    [failed], [first, second, _] = admin.start("walk-fails"), admin.start("walk-waits", count=3)
    admin.until_ended(failed)
    link = admin.call(rpc.AccountsStub, "CreateBootstrapLink", pb.CreateBootstrapLinkRequest()).secret
    return {"failed": failed, "first": first, "second": second, "minute": f"{later:%Y-%m-%dT%H:%M}", "link": link}


@contextmanager
def orphaned(stack: Stack, admin: AdminClient) -> Iterator[int]:
    """A run whose executor is stopped; it waits for that one."""
    [run_id] = admin.start("walk-goes-on")
    admin.until(lambda: admin.run(run_id).state == "RUNNING", of="the run")
    executor = executor_name(stack, admin, admin.run(run_id).worker_id)
    stack.kill(executor, signal.SIGSTOP)
    try:
        yield run_id
    finally:
        stack.kill(executor, signal.SIGCONT)


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.skipif(not find_browser(), reason="no Chromium here: apt install chromium")
def test_every_action_of_the_site(stack: Stack, admin: AdminClient, tmp_path: Path) -> None:
    with browsing(tmp_path / "profile") as new_page:
        visitor = Visitor(page=new_page(), base=f"http://{stack.sites[0]}", admin=admin, known=prepared(admin))
        visitor.do(GATE)
        # A second session, for the person to end.
        SiteClient(stack.sites[0]).sign_in()
        visitor.do((*PEOPLE, *FLOWS, *DEFINITIONS, *RUNS, *CLUSTER))
        visitor.look_at(OPENED)
        with orphaned(stack, admin) as run_id:
            visitor.known["orphan"] = run_id
            visitor.do(LOST)
    assert set(visitor.looks) == set(itertools.product(LANGUAGES, ("dark", "light")))
    assert visitor.findings == [], "\n".join(visitor.findings)
