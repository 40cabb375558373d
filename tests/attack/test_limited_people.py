"""People whose rights are for some jobs try to reach, stop or hold up the jobs of others by their own, over REST."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import webhooks_pb2, webhooks_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_testing.accounts import user_token
from toban_testing.admin_client import AdminClient
from toban_testing.site_client import PASSWORD, SiteClient
from toban_testing.stack_fixtures import sql

SECONDS = 30.0
VALUE = "HUNTER2-Trillian-43"
# In another case, which no masking covers: the output has what the job got.
SHOWS_SECRET = 'f="$TOBAN_SECRETS_DIR/$0"; test -e "$f" && tr A-Z a-z < "$f" || echo none'
OF_A, OF_B = {"team": "a"}, {"team": "b"}


@dataclass(frozen=True)
class Person:
    """A person with an API token, at the REST interface of the site."""

    site: str
    name: str
    token: str

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """The answer, whose body is still to be read; its connection ends with it."""
        connection = http.client.HTTPConnection(self.site, timeout=SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named["Content-Type"] = "application/json"
        text = None if body is None else json.dumps(body)
        connection.request(
            method, f"/api/v1{path}", text, {"Authorization": f"Bearer {self.token}", "Connection": "close", **named}
        )
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and text."""
        with self.send(method, path, body, **headers) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")

    def start(self, job: str, **given: Any) -> int:
        """The number of a new run."""
        status, text = self.ask("POST", f"/jobs/{job}/runs", given)
        assert status == 201, text
        return int(json.loads(text)["run_id"])


@pytest.fixture
def person(stack: Stack, admin: AdminClient) -> Any:
    """`person(name, role, **selector)`: a new account with one rule."""

    def make(name: str, role: str = "editor", **selector: Any) -> Person:
        return Person(stack.sites[0], name, user_token(admin, name, role, **selector))

    return make


def refused(attacks: Any, what: str, answer: tuple[int, str], *statuses: int, words: str = "") -> None:
    """One attack over REST, which must be answered with one of these statuses (403) and these words."""
    status, text = answer
    attacks.expect(what, refused=status in (statuses or (403,)) and words in text, instead=answer)


def without_ids(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without its request's number and path, which the caller has."""
    return {name: value for name, value in answer.items() if name not in ("request_id", "instance")}


def spec(*argv: str, **more: Any) -> dict[str, Any]:
    return {"steps": [{"argv": list(argv) or ["true"]}], "timeout_seconds": 60, **more}


def shows_secret(secret: str, **more: Any) -> dict[str, Any]:
    """A job that prints the value of the secret in lower case, or `none`."""
    return spec("sh", "-c", SHOWS_SECRET, secret, allow_shell=True, **more)


def job(name: str, labels: dict[str, str], body: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": body or spec(),
    }


def trigger(name: str, **body: Any) -> dict[str, Any]:
    return {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": name}, "spec": body}


def put(who: Person, name: str, labels: dict[str, str], body: dict[str, Any] | None = None) -> tuple[int, str]:
    return who.ask("PUT", f"/jobs/{name}", {"metadata": {"labels": labels}, "spec": body or spec()})


def keep_secret(admin: AdminClient, name: str, *jobs: str) -> None:
    admin.call(rpc.OperationsStub, "SetSecret", pb.SetSecretRequest(name=name, value=VALUE.encode(), jobs=jobs))


def outcome(admin: AdminClient, run: int) -> list[str]:
    """The lines of a run once it has ended."""
    ended = admin.until_ended(run)
    assert ended.state == "SUCCEEDED", ended
    return admin.until(lambda: admin.log(run), of="its output")


@pytest.mark.parametrize("history", ["never", "deleted", "renamed"])
def test_no_secret_goes_to_who_takes_the_name_of_a_job(
    attacks: Any, admin: AdminClient, person: Any, history: str
) -> None:
    name, secret = f"report-{history}", f"pay-{history}"
    eve = person(f"eve-{history}", labels=OF_A)
    own = {**shows_secret(secret), "secrets": [{"name": secret}]}
    if history == "never":
        keep_secret(admin, secret, name)
    else:
        admin.apply(job(name, OF_B))
        keep_secret(admin, secret, name)
        admin.apply(job(name, OF_B, own))
        assert outcome(admin, *admin.start(name)) == [VALUE.lower()], "the job that it is for has it"
        if history == "renamed":
            # A job is renamed by applying it under another name and deleting the old one.
            admin.apply(job(f"{name}-later", OF_B))
        admin.call(rpc.JobControlStub, "DeleteJob", pb.DeleteJobRequest(name=name))
    statuses = 400, 403, 404, 409
    refused(attacks, "the name with the secret", put(eve, name, OF_A, own), *statuses, words=secret)
    both = {"manifests": [job(f"{name}-own", OF_A), job(name, OF_A, own)]}
    refused(attacks, "the name beside an own job", eve.ask("POST", "/apply", both), *statuses, words=secret)
    if history == "renamed":
        renamed = put(eve, f"{name}-later", OF_A, own)
        refused(attacks, "the job under its new name", renamed)
    # Without naming it: a later definition of a job that exists already would be checked less.
    without = put(eve, name, OF_A, shows_secret(secret))
    if history == "never":
        refused(
            attacks, "the name alone", without, words=f"the secret {secret} is for a job of this name, which is new"
        )
    else:
        assert without[0] in (200, 201), without
        attacks.expect("a run of the name", refused=outcome(admin, eve.start(name)) == ["none"])
        refused(attacks, "the secret later", put(eve, name, OF_A, own), *statuses, words=secret)
    status, text = eve.ask("GET", "/secrets")
    attacks.expect("the list", refused=status == 200 and secret not in text and "report-" not in text, instead=text)


@pytest.mark.parametrize("limits", ["a label", "all but one job"])
def test_no_trigger_shows_events_to_who_may_see_some_jobs(
    attacks: Any, admin: AdminClient, person: Any, limits: str
) -> None:
    key = limits.replace(" ", "-")
    own, event_type = f"spy-{key}", f"payroll.{key}"
    admin.apply(
        job(own, OF_A), job(f"pays-{key}", OF_B), trigger(f"pays-{key}", job=f"pays-{key}", event_type=event_type)
    )
    eve = person(f"eve-{key}", **({"labels": OF_A} if limits == "a label" else {}))
    if limits == "all but one job":
        rule = pb.AccessRule(user=eve.name, effect="deny", role="viewer", selector=pb.AccessSelector(job=f"pays-{key}"))
        admin.call(rpc.AccountsStub, "AddRule", pb.AddRuleRequest(rule=rule))
        admin.until(lambda: eve.ask("GET", f"/jobs/pays-{key}")[0] == 403, of="the rule counts")
    spying = {"job": own, "payload": {"all": "{{ event.payload }}"}}
    why = "a trigger shows events, which belong to no job"
    on_event = {**spying, "event_type": event_type}
    refused(attacks, "a new trigger", eve.ask("PUT", f"/triggers/new-{key}", {"spec": on_event}), words=why)
    # One that they may make, which they then change.
    after = {"job": own, "on_run_end": {"job": f"{own}-first"}}
    assert put(eve, f"{own}-first", OF_A)[0] == 201
    assert eve.ask("PUT", f"/triggers/mine-{key}", {"spec": after})[0] == 201
    refused(attacks, "a changed trigger", eve.ask("PUT", f"/triggers/mine-{key}", {"spec": on_event}), words=why)
    documents = [job(f"{own}-third", OF_A), trigger(f"third-{key}", **on_event)]
    refused(attacks, "among others", eve.ask("POST", "/apply", {"manifests": documents}), words=why)
    ends = {"spec": {**spying, "event_type": "@run-end"}}
    refused(attacks, "the ends of all runs", eve.ask("PUT", f"/triggers/ends-{key}", ends), 400, 403)
    refused(attacks, "the list of events", eve.ask("GET", "/events"))
    request = pb.EmitEventRequest(event_type=event_type, payload_json='{"salary": 9999}')
    admin.call(rpc.JobControlStub, "EmitEvent", request)
    [paid] = admin.until(lambda: list(admin.runs(job=f"pays-{key}")), of="the event has started its job")
    admin.until_ended(paid.id)
    attacks.expect(
        "a run with the payload", refused=not [one for one in admin.runs(job=own) if "9999" in one.payload_json]
    )


def test_no_label_of_an_own_job_starts_the_jobs_of_others(attacks: Any, admin: AdminClient, person: Any) -> None:
    export = {"export": "cards"}
    starts = trigger("charges", job="charge", on_run_end={"labels": export}, payload={"card": "{{ payload.card }}"})
    admin.apply(job("charge", OF_B), job("exports", {**OF_B, **export}), job("own-a", OF_A), starts)
    eve = person("eve-label", labels=OF_A)
    why = "export=cards starts triggers of others"
    refused(attacks, "on the own job", put(eve, "own-a", {**OF_A, **export}), words=why)
    refused(attacks, "on a new job", put(eve, "own-a-new", {**OF_A, **export}), words=why)
    labelled = {"manifests": [job("own-a", {**OF_A, **export})]}
    refused(attacks, "among others", eve.ask("POST", "/apply", labelled), words=why)
    refused(attacks, "the label in place of the own one", put(eve, "own-a", export))
    refused(attacks, "a job of others with it", eve.ask("POST", "/jobs/exports/runs", {"payload": {"card": "forged"}}))
    admin.until_ended(eve.start("own-a", payload={"card": "forged"}))
    # Ends are processed in their order: after this one, that of the attacker has been looked at.
    [run] = admin.start("exports", payload={"card": "real"})
    admin.until_ended(run)
    admin.until(lambda: list(admin.runs(job="charge")), of="the end of a real export starts the job")
    cards = [json.loads(one.payload_json) for one in admin.runs(job="charge")]
    attacks.expect("a run with the own payload", refused=cards == [{"card": "real"}], instead=cards)


def test_no_job_selects_a_group_that_is_for_the_jobs_of_others(attacks: Any, admin: AdminClient, person: Any) -> None:
    group = pb.SetExecutorGroupRequest(
        name="cards", labels={"pool": "cards", "zone": "vault"}, job_labels=OF_B, create=True
    )
    admin.call(rpc.OperationsStub, "SetExecutorGroup", group)
    eve, editor = person("eve-group", labels=OF_A), person("editor-group")
    admin.apply(job("placed-a", OF_A))
    for label in ({"pool": "cards"}, {"zone": "vault"}, {"pool": "cards", "zone": "vault"}):
        into = spec(selector={"labels": label})
        refused(attacks, f"{label} for the own job", put(eve, "placed-a", OF_A, into), 400, 403, words="cards")
        refused(attacks, f"{label} for a new job", put(eve, "placed-new", OF_A, into), 400, 403, words="cards")
        refused(attacks, f"{label} by an editor of all jobs", put(editor, "placed-all", {}, into), 400, words="cards")
        both = put(eve, "placed-a", {**OF_A, **OF_B}, into)
        refused(attacks, f"{label} with the label of the jobs", both, 400, 403)
    assert put(editor, "placed-b", OF_B, spec(selector={"labels": {"pool": "cards"}}))[0] == 201, "a job of the group"


def test_no_label_of_a_group_is_given_by_who_may_edit_some_of_its_jobs(
    attacks: Any, admin: AdminClient, person: Any
) -> None:
    """The attacker's rule fits the job by its other label, and the label of the group is one more."""
    group = pb.SetExecutorGroupRequest(name="vault", labels={"pool": "vault"}, job_labels={"cards": "yes"}, create=True)
    admin.call(rpc.OperationsStub, "SetExecutorGroup", group)
    eve = person("eve-vault", labels=OF_A)
    into = spec(selector={"labels": {"pool": "vault"}})
    for body in (into, spec()):
        answer = put(eve, "vaulted", {**OF_A, "cards": "yes"}, body)
        refused(attacks, "the label of the group", answer, words="the label cards=yes")


STREAMS = 4
"""That a person may have open at one worker of the site."""


def test_one_viewer_leaves_streams_and_downloads_to_others(attacks: Any, admin: AdminClient, person: Any) -> None:
    # No executor has the label: the run waits, and a stream of it stays open.
    waits = spec("true", selector={"labels": {"place": "nowhere"}})
    admin.apply(job("watched", OF_A, waits), job("read", OF_B, spec("echo", "a line")))
    [waiting], [read] = admin.start("watched"), admin.start("read")
    assert outcome(admin, read) == ["a line"]
    eve, other = (person(name, "viewer", job="watched") for name in ("eve-streams", "viewer-streams"))
    every = person("every-streams", "viewer")
    with contextlib.ExitStack() as opened:

        def watch(who: Person) -> http.client.HTTPResponse:
            answer = opened.enter_context(who.send("GET", f"/runs/{waiting}/stream"))
            if answer.status == 200:
                assert answer.readline(), "the stream has begun"
            return answer

        for number in range(4 * STREAMS):
            answer = watch(eve)
            if number < STREAMS:
                assert answer.status == 200, answer.status
            else:
                # A stream that was opened has no end.
                text = "" if answer.status == 200 else answer.read().decode()
                refused(attacks, f"stream {number + 1}", (answer.status, text), 429, words=f"{eve.name} has {STREAMS}")
        attacks.expect("the streams of another viewer", refused=watch(other).status == 200)
        for what, path in {
            "the stream of a run": f"/runs/{waiting}/stream",
            "live output": f"/runs/{read}/logs/stream",
            "a download": f"/runs/{read}/logs",
            "a search": "/jobs/read/logs?grep=line",
        }.items():
            with every.send("GET", path) as answer:
                attacks.expect(f"{what} of others", refused=answer.status == 200, instead=answer.status)
        # Several viewers together leave places to downloads and searches.
        for number in range(3 * STREAMS):
            watch(person(f"crowd-streams-{number}", "viewer", job="watched"))
        for path in (f"/runs/{read}/logs", "/jobs/read/logs?grep=line"):
            status, text = every.ask("GET", path)
            attacks.expect(f"{path} while all streams are taken", refused=status == 200, instead=text)
    admin.cancel(waiting)


def test_a_key_of_another_team_names_and_stops_nothing(attacks: Any, admin: AdminClient, person: Any) -> None:
    admin.apply(job("keyed-a", OF_A), job("keyed-b", OF_B))
    eve, bob = person("eve-key", labels=OF_A), person("bob-key", labels=OF_B)
    theirs = bob.ask("POST", "/jobs/keyed-b/runs", {}, Idempotency_Key="nightly")
    assert theirs[0] == 201, theirs
    hidden = re.compile(rf"keyed-b|\b{json.loads(theirs[1])['run_id']}\b")
    first = eve.ask("POST", "/jobs/keyed-a/runs", {"payload": {"n": 1}}, Idempotency_Key="nightly")
    attacks.expect("a key that others have used", refused=first[0] == 201, instead=first)
    again = eve.ask("POST", "/jobs/keyed-a/runs", {"payload": {"n": 2}}, Idempotency_Key="nightly")
    of_another = eve.ask("POST", "/jobs/keyed-b/runs", {}, Idempotency_Key="nightly")
    refused(attacks, "another payload", again, 409)
    refused(attacks, "the job of others with their key", of_another)
    for status, text in (first, again):
        told = hidden.findall(json.dumps(without_ids(json.loads(text))))
        attacks.expect("what others have started", refused=not told, instead=(status, text))
    # A key that is taken ahead of them.
    assert eve.ask("POST", "/jobs/keyed-a/runs", {}, Idempotency_Key="tomorrow")[0] == 201
    later = bob.ask("POST", "/jobs/keyed-b/runs", {}, Idempotency_Key="tomorrow")
    attacks.expect("to take the key of tomorrow", refused=later[0] == 201, instead=later)


TOKENS, REQUESTS, THREADS = 10, 40, 8
BURST, A_SECOND = 200, 20
"""SCHEDULER_API_RATE of 1200 a minute: what comes at once, and what is added in a second."""


def test_more_tokens_give_a_person_no_higher_rate(attacks: Any, person: Any) -> None:
    eve, other = person("eve-rate", "viewer"), person("other-rate", "viewer")
    clock = SystemClock()
    begun = clock.monotonic()
    tokens = []
    for number in range(TOKENS):
        status, text = eve.ask("POST", "/account/tokens", {"name": f"t{number}", "role": "viewer", "days": 1})
        assert status == 201, text
        tokens.append(Person(eve.site, eve.name, json.loads(text)["secret"]))
    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(lambda one: one.ask("GET", "/session")[0], tokens * REQUESTS))
    # However long it took: what the rate of one person allows in that time.
    most = BURST + A_SECOND * (clock.monotonic() - begun) + 1
    allowed = answers.count(200) + TOKENS
    assert set(answers) <= {200, 429}
    attacks.expect("ten rates for ten tokens", refused=allowed <= most, instead=f"{allowed} of {most}")
    status, text = other.ask("GET", "/session")
    attacks.expect("to use up the rate of others", refused=status == 200, instead=text)


def test_no_webhook_of_others_gets_messages_of_an_own_job(attacks: Any, admin: AdminClient, person: Any) -> None:
    filters = {
        "pager": webhooks_pb2.WebhookFilter(states=["NONE"]),
        "room-b": webhooks_pb2.WebhookFilter(states=["NONE"], labels=OF_B),
        "of-a-job": webhooks_pb2.WebhookFilter(states=["NONE"], jobs=["notified-later"]),
    }
    for name, chosen in filters.items():
        request = webhooks_pb2.SetWebhookRequest(name=name, url="https://hooks.example.com/x", filter=chosen)
        admin.call(webhooks_pb2_grpc.WebhooksStub, "SetWebhook", request)
    eve = person("eve-webhook", labels=OF_A)
    admin.apply(job("notified", OF_A, spec("false")))
    for name in filters:
        body = spec("false", notify=[{"webhook": name, "on": ["failed"]}])
        why = f"the webhook {name} is for no label or name of this job"
        refused(attacks, f"{name} by the own job", put(eve, "notified", OF_A, body), words=why)
        refused(attacks, f"{name} by a new job", put(eve, "notified-new", OF_A, body), words=why)
    taken = put(eve, "notified-later", OF_A, spec("false"))
    refused(attacks, "the name of a job that a webhook is for", taken, words="the webhook of-a-job is for a job")
    refused(attacks, "the label that a webhook is for", put(eve, "notified", {**OF_A, **OF_B}, spec("false")))
    admin.until_ended(eve.start("notified"))
    asked = webhooks_pb2.ListDeliveriesRequest()
    made = [
        one
        for one in admin.call(webhooks_pb2_grpc.WebhooksStub, "ListDeliveries", asked).deliveries
        if one.webhook in filters
    ]
    attacks.expect("a delivery", refused=not made, instead=made)
    for path in ("/webhooks", "/deliveries"):
        refused(attacks, f"the list {path}", eve.ask("GET", path))


@pytest.fixture
def no_administrator(stack: Stack, admin: AdminClient) -> Iterator[None]:
    """Accounts with passwords, which other files of this folder make, are disabled until the end of the test."""
    change = "UPDATE scheduler.users SET enabled = {} WHERE {} RETURNING name"
    disabled = sql(stack, change.format("false", "enabled AND password_hash IS NOT NULL"))
    # The site remembers for ten seconds that there is an administrator.
    admin.until(lambda: SiteClient(stack.sites[0]).get("/").count('action="/first"'), of="the page for the first one")
    yield
    sql(stack, change.format("true", "name = ANY(%(names)s)"), names=[one["name"] for one in disabled])


def test_a_race_for_the_first_administrator_has_one_winner(
    attacks: Any, stack: Stack, admin: AdminClient, no_administrator: None
) -> None:
    many = 8
    secret = admin.call(rpc.AccountsStub, "CreateBootstrapLink", pb.CreateBootstrapLinkRequest()).secret
    together = threading.Barrier(many)

    def use(number: int) -> str:
        browser = SiteClient(stack.sites[0])
        given = {"link": secret, "user": f"first-{number}", "password": PASSWORD, "again": PASSWORD}
        form = {**browser.hidden("/first", "/first"), **given}
        together.wait(SECONDS)
        try:
            return browser.send("/first", **form)[0]
        except urllib.error.HTTPError as error:
            with error:
                return str(error.code)

    with ThreadPoolExecutor(many) as threads:
        found = list(threads.map(use, range(many)))
    attacks.expect("a second administrator", refused=found.count("/") == 1, instead=found)
    found.remove("/")
    for answer in found:
        # Who comes after the end of the race is asked to sign in.
        attacks.expect("the link once more", refused=answer in ("409", "/sign-in"), instead=answer)


def test_no_priority_puts_own_runs_before_those_of_others(
    attacks: Any, stack: Stack, admin: AdminClient, person: Any
) -> None:
    admin.apply(job("urgent", OF_A))
    eve, editor = person("eve-priority", labels=OF_A), person("editor-priority")
    for priority in (1, 100, 1000):
        refused(attacks, f"{priority} of a job", put(eve, "urgent", OF_A, spec(priority=priority)), words="priority")
        refused(
            attacks, f"{priority} of a new one", put(eve, "urgent-new", OF_A, spec(priority=priority)), words="priority"
        )
        one = eve.ask("POST", "/jobs/urgent/runs", {"priority": priority})
        refused(attacks, f"{priority} of a run", one, words="priority")
        many = eve.ask("POST", "/runs", {"runs": [{"job": "urgent"}, {"job": "urgent", "priority": priority}]})
        refused(attacks, f"{priority} of one of two", many, words="priority")
    run = eve.start("urgent")
    admin.until_ended(run)
    refused(attacks, "of a repeated run", eve.ask("POST", f"/runs/{run}/rerun", {"priority": 100}), words="priority")
    many = eve.ask("POST", "/runs/rerun", {"filter": {"job": "urgent"}, "priority": 100, "reason": "x"})
    refused(attacks, "of many repeated runs", many, words="priority")
    high = editor.start("urgent", priority=1000)
    admin.until_ended(high)
    status, text = eve.ask("POST", f"/runs/{high}/rerun", {})
    assert status == 201, text
    again = json.loads(text)["run_id"]
    [stored] = sql(stack, "SELECT priority FROM scheduler.job_runs WHERE id = %(id)s", id=again)
    attacks.expect("the priority of the run that is repeated", refused=stored["priority"] == 0, instead=stored)


def test_lists_show_limited_people_nothing_of_the_secrets_of_others(
    attacks: Any, admin: AdminClient, person: Any
) -> None:
    keep_secret(admin, "open-to-all")
    keep_secret(admin, "kept-for-b", "listed-b", "listed-waits")
    keep_secret(admin, "kept-for-both", "listed-a", "listed-b")
    uses = {"secrets": [{"name": "open-to-all"}]}
    admin.apply(job("listed-a", OF_A, spec(**uses)), job("listed-b", OF_B, spec(**uses)))
    eve, viewer, editor = (
        person("eve-list", labels=OF_A),
        person("viewer-list", "viewer", labels=OF_A),
        person("editor-list"),
    )
    status, text = eve.ask("GET", "/secrets")
    seen = {one["name"]: one for one in json.loads(text)["secrets"]}
    attacks.expect("the secrets of others", refused=status == 200 and "kept-for-b" not in seen, instead=text)
    attacks.expect("the jobs of others", refused="listed-b" not in text and "listed-waits" not in text, instead=text)
    assert seen["open-to-all"]["used_by"] == ["listed-a"] and seen["kept-for-both"]["jobs"] == ["listed-a"], seen
    refused(attacks, "the list for a viewer", viewer.ask("GET", "/secrets"))
    for method, path, body in (
        ("PUT", "/secrets/kept-for-b", {"value": "mine-mine", "all_jobs": True}),
        ("PUT", "/secrets/webhook.x", {"value": "mine-mine"}),
        ("DELETE", "/secrets/kept-for-b", None),
        ("POST", "/secrets/rotate", None),
    ):
        refused(attacks, f"{method} {path}", eve.ask(method, path, body))
    assert "kept-for-b" in editor.ask("GET", "/secrets")[1], "who may edit all jobs sees them"
