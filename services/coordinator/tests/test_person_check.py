"""Persons of calls, over real accounts and jobs: each role, scoped rules, tokens, credentials that are no longer valid."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toban_coordinator.app.accounts import Accounts, NewRule
from toban_coordinator.app.apply import Apply
from toban_coordinator.app.credentials import REMEMBERED_SECONDS, Credentials
from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.fast_path import CurrentFastPath
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.passwords import Passwords
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.sign_in import NewToken, SignIn
from toban_coordinator.app.start_runs import RunRequest, StartRuns
from toban_coordinator.server.job_reader import JobReader
from toban_coordinator.server.person_check import PeopleCheck, run_rights
from toban_coordinator.server.person_targets import LISTED, NAMED
from toban_domain.access import MINIMUM, Action, Effect, Role, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import autocommit
from toban_testing.clock import FakeClock
from toban_transport.call_context import set_actor
from toban_transport.person_rules import CREDENTIAL, PERSON_RULES, WITHOUT_PERSON, About
from toban_transport.read_ticket import ReadTicketSigner, ReadTicketVerifier
from toban_transport.tls import TlsFiles

PASSWORD = "correct horse battery"
READER, CONTROL, OPERATIONS = "/toban_proto.v1.JobReader/", "/toban_proto.v1.JobControl/", "/toban_proto.v1.Operations/"


def job(name: str, team: str) -> str:
    spec = {"steps": [{"id": "run", "argv": ["/bin/true"]}]}
    metadata = {"name": name, "labels": {"team": team}}
    return json.dumps({"apiVersion": "toban/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def schedule(name: str, of: str) -> str:
    spec = {"job": of, "interval_seconds": 3600}
    return json.dumps({"apiVersion": "toban/v1", "kind": "Schedule", "metadata": {"name": name}, "spec": spec})


def start(name: str, **given: Any) -> pb.StartRunsRequest:
    return pb.StartRunsRequest(runs=[pb.StartRunRequest(job=name, **given)])


@dataclass
class World:
    """Jobs backup (team ops) and mail (team web), each with a schedule of its name, and accounts."""

    pool: Pool
    clock: FakeClock
    accounts: Accounts
    sign_in: SignIn
    check: PeopleCheck

    async def user(self, name: str, *rules: tuple[str, str, Selector]) -> str:
        """A session of a new account with these rules."""
        await self.accounts.add_user(name, display_name="", password=PASSWORD, actor="certificate admin-cli")
        for effect, role, selector in rules:
            rule = NewRule(user=name, effect=Effect(effect), role=Role(role), selector=selector)
            await self.accounts.add_rule(rule, actor="certificate admin-cli")
        return (await self.sign_in.with_password(name, PASSWORD, address="192.0.2.1")).secret

    async def token(self, user: str, role: str, selector: Selector | None = None) -> tuple[str, int]:
        new = NewToken(user=user, name="t", role=Role(role), selector=selector or Selector(), days=1)
        secret, number, _ = await self.sign_in.create_token(new, actor="user root")
        return secret, number

    async def ask(self, method: str, request: Any = None, *, secret: str = "", service: str = "admin-web") -> Any:
        """The admission, or the code of the refusal."""
        given = {CREDENTIAL: secret} if secret else {}
        try:
            about = request if callable(request) else lambda: request
            return await self.check.admit(method, caller=Caller("192.0.2.7", service), about=about, given=given)
        except TobanError as error:
            return error.code


@pytest.fixture
async def world(pool: Pool) -> AsyncIterator[World]:
    passwords, ids, clock = Passwords(memory_kib=8, time_cost=1), IdSource(), FakeClock()
    texts = [job("backup", "ops"), job("mail", "web"), schedule("backup", "backup"), schedule("mail", "mail")]
    await Apply(pool=pool).apply([ManifestText(json=text) for text in texts], actor="user root")
    sign_in = SignIn(pool=pool, passwords=passwords, ids=ids)
    accounts = Accounts(pool=pool, passwords=passwords, ids=ids)
    check = PeopleCheck(pool=pool, credentials=Credentials(sign_in=sign_in, clock=clock))
    yield World(pool, clock, accounts, sign_in, check)
    passwords.close()


EVERYTHING = Selector()
OPS = Selector(labels={"team": "ops"})


def allowed(answer: Any) -> bool:
    assert not isinstance(answer, ErrorCode) or answer is ErrorCode.PERMISSION_DENIED
    return not isinstance(answer, ErrorCode)


def test_every_method_names_its_targets() -> None:
    assert set(NAMED) == {method for method, rule in PERSON_RULES.items() if rule.about is About.JOBS}
    assert set(LISTED) == {method for method, rule in PERSON_RULES.items() if rule.about is About.LIST}


@pytest.mark.parametrize("role", [*Role, None])
async def test_every_method_by_every_role(world: World, role: Role | None) -> None:
    secret = await world.user("bob", *([("allow", role.value, EVERYTHING)] if role else []))
    for method, rule in PERSON_RULES.items():
        expected = rule.about is About.OWN or (role is not None and role.rank >= MINIMUM[rule.action].rank)
        assert allowed(await world.ask(method, secret=secret)) is expected, method


async def test_without_a_person(world: World) -> None:
    for method in PERSON_RULES:
        for service in ("admin-web", "shared/toban"):
            assert await world.ask(method, service=service) is ErrorCode.UNAUTHENTICATED, method
        assert await world.ask(method, service="admin-cli") is None, method
    for method in WITHOUT_PERSON:
        assert await world.ask(method, secret="stale") is None
    assert await world.ask("/toban_proto.v1.Peer/Ping", service="coordinator") is None
    assert await world.ask("/toban_proto.v1.ExternalWork/Claim", service="external-worker") is None


async def test_the_request_is_parsed_only_for_a_person_with_the_role(world: World) -> None:
    asked, given = world.ask, {role: await world.user(role, ("allow", role, OPS)) for role in ("viewer", "editor")}
    assert await asked(CONTROL + "Apply", pytest.fail) is ErrorCode.UNAUTHENTICATED
    assert await asked(CONTROL + "Apply", pytest.fail, secret=given["viewer"]) is ErrorCode.PERMISSION_DENIED
    assert allowed(await asked(CONTROL + "Apply", pb.ApplyRequest, secret=given["editor"]))


async def test_a_rule_for_some_jobs_is_for_those_only(world: World) -> None:
    secret = await world.user("bob", ("allow", "editor", OPS))
    cases: list[tuple[str, Callable[[str], Any]]] = [
        (READER + "GetJob", lambda name: pb.GetJobRequest(name=name)),
        (READER + "GetSchedule", lambda name: pb.GetScheduleRequest(name=name)),
        (READER + "NextSlots", lambda name: pb.NextSlotsRequest(name=name)),
        (READER + "NextSlots", lambda name: pb.NextSlotsRequest(manifest=pb.Manifest(json=schedule("s", name)))),
        (READER + "ListFires", lambda name: pb.ListFiresRequest(schedule=name)),
        (CONTROL + "StartRuns", lambda name: pb.StartRunsRequest(runs=[pb.StartRunRequest(job=name)])),
        (CONTROL + "DeleteJob", lambda name: pb.DeleteJobRequest(name=name)),
        (CONTROL + "DisableJob", lambda name: pb.DisableJobRequest(name=name)),
        (READER + "ListJobVersions", lambda name: pb.ListJobVersionsRequest(name=name)),
        (READER + "GetJobDays", lambda name: pb.GetJobDaysRequest(name=name)),
        (CONTROL + "PauseSchedule", lambda name: pb.PauseScheduleRequest(name=name)),
    ]
    for method, request in cases:
        for name, expected in (("backup", True), ("mail", False)):
            assert allowed(await world.ask(method, request(name), secret=secret)) is expected, (method, name)
    for scope in ("system", ""):
        assert allowed(await world.ask(CONTROL + "StartRuns", start("backup", scope=scope), secret=secret))
    assert not allowed(await world.ask(CONTROL + "StartRuns", start("backup", ignore_limits=True), secret=secret))
    both = pb.StartRunsRequest(runs=[pb.StartRunRequest(job="backup"), pb.StartRunRequest(job="mail")])
    assert not allowed(await world.ask(CONTROL + "StartRuns", both, secret=secret))
    assert allowed(await world.ask(READER + "GetCluster", secret=secret))
    for whole in (READER + "ListEvents", CONTROL + "EmitEvent", OPERATIONS + "UpdateSetting"):
        assert not allowed(await world.ask(whole, secret=secret)), whole


async def test_the_ledger_of_a_deleted_schedule_is_for_those_who_may_see_its_job(world: World) -> None:
    """Also when a schedule of another job has its name now."""
    secret = await world.user("bob", ("allow", "viewer", OPS))
    fires = [pb.ListFiresRequest(schedule=name) for name in ("mail", "backup")]
    for name in ("mail", "backup"):
        async with autocommit(world.pool) as t:
            await t.execute(
                "INSERT INTO scheduler.schedules_deleted (id, name, spec, settled_until)"
                " SELECT id, name, spec || jsonb_build_object('job', name), now() FROM scheduler.schedules WHERE name = %(name)s",
                {"name": name},
            )
            await t.execute("DELETE FROM scheduler.schedules WHERE name = %(name)s", {"name": name})
    assert [allowed(await world.ask(READER + "ListFires", one, secret=secret)) for one in fires] == [False, True]
    await Apply(pool=world.pool).apply([ManifestText(json=schedule("mail", "backup"))], actor="user root")
    assert not allowed(await world.ask(READER + "ListFires", fires[0], secret=secret))


async def test_a_rule_for_a_scope_is_for_runs_of_that_scope(world: World) -> None:
    secret = await world.user("bob", ("allow", "operator", Selector(scope="account", scope_id="17")))
    for given, expected in (
        ({"scope": "account", "scope_id": "17"}, True),
        ({"scope": "account", "scope_id": "8"}, False),
        ({}, False),
    ):
        assert allowed(await world.ask(CONTROL + "StartRuns", start("mail", **given), secret=secret)) is expected, given
    for selector, days in ((Selector(job="backup", scope="system"), 0), (Selector(job="backup"), 1)):
        viewer = await world.user(f"viewer-{days}", ("allow", "viewer", selector))
        admission = await world.ask(READER + "GetJobDays", pb.GetJobDaysRequest(name="backup"), secret=viewer)
        assert len((await admission.visible(pb.JobDays(days=[pb.JobDay(failed=1)]))).days) == days


async def test_to_pass_over_limits_is_for_administrators(world: World) -> None:
    for role, expected in (("editor", False), ("admin", True)):
        secret = await world.user(role, ("allow", role, EVERYTHING))
        assert (
            allowed(await world.ask(CONTROL + "StartRuns", start("mail", ignore_limits=True), secret=secret))
            is expected
        )
        assert allowed(await world.ask(CONTROL + "StartRuns", start("mail"), secret=secret))


async def test_a_manifest_needs_the_right_to_what_is_stored_and_to_what_it_makes(world: World) -> None:
    secret = await world.user("bob", ("allow", "editor", OPS))

    async def may_apply(*texts: str) -> bool:
        request = pb.ApplyRequest(manifests=[pb.Manifest(json=text) for text in texts])
        return allowed(await world.ask(CONTROL + "Apply", request, secret=secret))

    assert await may_apply(job("backup", "ops")) and await may_apply(job("new", "ops"))
    assert await may_apply(job("new", "ops"), schedule("new", "new"))
    assert not await may_apply(job("backup", "web")), "a job is not given away"
    assert not await may_apply(job("mail", "ops")), "a job is not taken"
    assert not await may_apply(job("backup", "ops"), job("mail", "web"))
    assert not await may_apply(schedule("hourly", "mail"))
    assert not await may_apply(schedule("mail", "backup")), "the schedule of another job"
    assert await world.ask(CONTROL + "Apply", pb.ApplyRequest(manifests=[pb.Manifest(json="{")]), secret=secret) is (
        ErrorCode.MANIFEST_INVALID
    )


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ([("allow", "viewer", EVERYTHING)], ["backup", "mail"]),
        ([("allow", "viewer", OPS)], ["backup"]),
        ([("allow", "viewer", EVERYTHING), ("deny", "viewer", OPS)], ["mail"]),
        ([("allow", "viewer", Selector(scope="account", scope_id="17"))], []),
    ],
)
async def test_lists_leave_out_what_the_person_may_not_see(
    world: World, rules: list[tuple[str, str, Selector]], names: list[str]
) -> None:
    secret = await world.user("bob", *rules)
    for method, answer, field in (
        ("ListJobs", pb.ListJobsResponse(jobs=[pb.Job(name="backup"), pb.Job(name="mail")]), "jobs"),
        (
            "ListSchedules",
            pb.ListSchedulesResponse(schedules=[pb.Schedule(name="backup"), pb.Schedule(name="mail")], next_cursor="x"),
            "schedules",
        ),
    ):
        admission = await world.ask(READER + method, secret=secret)
        visible = await admission.visible(answer)
        assert [one.name for one in getattr(visible, field)] == names


async def test_a_token_is_bounded_by_itself_and_by_its_user(world: World) -> None:
    await world.user("bob", ("allow", "operator", EVERYTHING))
    wanted = start("mail")
    viewer, _ = await world.token("bob", "viewer")
    admin, number = await world.token("bob", "admin")
    ops, _ = await world.token("bob", "operator", OPS)
    assert not allowed(await world.ask(CONTROL + "StartRuns", wanted, secret=viewer))
    assert not allowed(await world.ask(CONTROL + "StartRuns", wanted, secret=ops))
    assert (await world.ask(CONTROL + "StartRuns", wanted, secret=admin)).actor == f"user bob, token {number}"
    assert not allowed(await world.ask(CONTROL + "PauseSchedule", pb.PauseScheduleRequest(name="mail"), secret=admin))
    # A certificate of admin-cli does not widen the rights of a token.
    assert not allowed(await world.ask(CONTROL + "StartRuns", wanted, secret=viewer, service="admin-cli"))


@pytest.mark.parametrize("change", ["sign out", "end", "disable", "revoke", "rule"])
async def test_what_was_taken_away_is_gone_after_the_time_that_it_is_remembered(world: World, change: str) -> None:
    secret = await world.user("bob", ("allow", "viewer", EVERYTHING))
    if change == "revoke":
        secret, number = await world.token("bob", "viewer")
    admission = await world.ask(READER + "ListJobs", secret=secret)
    assert allowed(admission)
    if change == "sign out":
        await world.sign_in.sign_out(secret, everywhere=False)
    elif change == "end":
        await world.sign_in.end_sessions("bob", actor="user root")
    elif change == "disable":
        await world.accounts.set_enabled("bob", enabled=False, actor="user root")
    elif change == "revoke":
        await world.sign_in.revoke_token(number, actor="user root")
    else:
        [rule] = await world.accounts.list_rules(user="bob")
        await world.accounts.remove_rule(rule["id"], actor="user root")
    await world.clock.advance(REMEMBERED_SECONDS + 0.01)
    expected = ErrorCode.PERMISSION_DENIED if change == "rule" else ErrorCode.UNAUTHENTICATED
    assert await world.ask(READER + "ListJobs", secret=secret) is expected
    with pytest.raises(TobanError) as caught:
        await admission.recheck()
    assert caught.value.code is expected


@pytest.mark.parametrize("secret", ["x", "0" * 64, "toban_pat_" + "0" * 64])
async def test_an_unknown_credential_is_refused(world: World, secret: str) -> None:
    for service in ("admin-web", "admin-cli"):
        assert await world.ask(READER + "ListJobs", secret=secret, service=service) is ErrorCode.UNAUTHENTICATED


async def test_an_account_without_a_password_is_no_administrator_who_can_sign_in(world: World) -> None:
    await world.accounts.add_user("local", display_name="", password="", actor="certificate admin-cli")
    rule = NewRule(user="local", effect=Effect.ALLOW, role=Role.ADMIN, selector=EVERYTHING)
    await world.accounts.add_rule(rule, actor="certificate admin-cli")
    assert not await world.accounts.has_administrator()
    secret, _ = await world.token("local", "admin")
    assert allowed(await world.ask(OPERATIONS + "UpdateSetting", secret=secret))


async def test_a_rerun_into_another_scope_needs_the_right_to_both(world: World) -> None:
    [run] = await runs_of(world, "backup")
    secret = await world.user("ann", ("allow", "operator", Selector(job="backup", scope="system")))
    method = CONTROL + "RerunRun"
    assert allowed(await world.ask(method, pb.RerunRunRequest(id=run), secret=secret))
    assert not allowed(await world.ask(method, pb.RerunRunRequest(id=run, scope="user", scope_id="x"), secret=secret))
    assert allowed(await world.ask(CONTROL + "NoteRun", pb.NoteRunRequest(id=run), secret=secret))


async def test_a_job_is_deleted_by_who_may_edit_all_of_its_scopes(world: World) -> None:
    request = pb.DeleteJobRequest(name="backup")
    secret = await world.user("ann", ("allow", "editor", Selector(job="backup", scope="system")))
    assert allowed(await world.ask(CONTROL + "DeleteJob", request, secret=secret))
    await runs_of(world, "backup", scope="account", scope_id="17")
    assert not allowed(await world.ask(CONTROL + "DeleteJob", request, secret=secret))


async def test_of_many_runs_each_is_checked(world: World) -> None:
    [mine], [theirs] = await runs_of(world, "backup"), await runs_of(world, "mail")
    viewed = ("allow", "viewer", Selector(job="mail"))
    secret = await world.user("ann", ("allow", "operator", Selector(job="backup")), viewed)
    assert allowed(await world.ask(CONTROL + "CancelRuns", pb.CancelRunsRequest(), secret=secret))
    assert await run_rights(Action.CANCEL)([mine, theirs, 999_999]) == {mine: True, theirs: False}
    blind = await world.user("bob", ("allow", "operator", Selector(job="backup")))
    assert allowed(await world.ask(CONTROL + "RerunRuns", pb.RerunRunsRequest(), secret=blind))
    assert await run_rights(Action.RUN)([mine, theirs]) == {mine: True}


async def test_read_tickets_are_for_the_runs_that_the_person_may_see(world: World, tls: Path) -> None:
    [mine], [theirs] = await runs_of(world, "backup"), await runs_of(world, "mail")
    verifier = ReadTicketVerifier(TlsFiles(tls / "log-archiver"), "toban.internal")
    signer = ReadTicketSigner(TlsFiles(tls / "coordinator"))
    deps: Any = SimpleNamespace(signer=signer, clock=world.clock)

    async def ticket(secret: str, *runs: int) -> tuple[list[int], str]:
        """The runs that the answer names, and whom the ticket is for; the ticket is for these runs and no others."""
        request = pb.GetReadTicketRequest(run_ids=runs)
        admission = await world.ask(READER + "GetReadTicket", request, secret=secret)
        set_actor(admission.actor)
        answer = await JobReader(deps=deps).GetReadTicket(request, None)
        body = verifier.verify(answer.ticket, run_ids=answer.run_ids, now=world.clock.wall())
        assert list(body.run_ids) == list(answer.run_ids) and answer.valid_seconds == 60
        return list(answer.run_ids), body.actor

    ops = await world.user("ann", ("allow", "viewer", OPS))
    assert await ticket(ops, theirs, mine, 999_999, mine) == ([mine], "user ann")
    for hidden in (theirs, 999_999):
        with pytest.raises(TobanError, match=f"user ann may not see run {hidden}") as caught:
            await ticket(ops, hidden)
        assert (caught.value.code, caught.value.detail) == (ErrorCode.PERMISSION_DENIED, {"user": "ann"})
    everything = await world.user("bob", ("allow", "viewer", EVERYTHING))
    assert await ticket(everything, theirs, mine) == ([theirs, mine], "user bob")
    scoped = await world.user("carl", ("allow", "viewer", Selector(scope="account", scope_id="17")))
    [other] = await runs_of(world, "mail", scope="account", scope_id="17")
    assert await ticket(scoped, mine, theirs, other) == ([other], "user carl")
    bounded, number = await world.token("bob", "viewer", OPS)
    assert await ticket(bounded, theirs, mine) == ([mine], f"user bob, token {number}")
    for runs in ([], [0], [*range(1, 1002)]):
        with pytest.raises(TobanError, match="name 1 to 1000 runs"):
            await ticket(everything, *runs)


def chain(job_name: str, **ends: Any) -> pb.ApplyRequest:
    spec = {"job": job_name, "on_run_end": ends}
    text = json.dumps({"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "after"}, "spec": spec})
    return pb.ApplyRequest(manifests=[pb.Manifest(json=text)])


async def test_who_lets_one_job_follow_another_may_edit_it_and_see_the_other(world: World) -> None:
    edits = ("allow", "editor", Selector(job="mail"))
    blind = await world.user("ann", edits)
    seeing = await world.user("bob", edits, ("allow", "viewer", Selector(job="backup")))
    wide = await world.user("carl", edits, ("allow", "viewer", OPS), ("deny", "viewer", Selector(job="backup")))
    apply = CONTROL + "Apply"
    assert not allowed(await world.ask(apply, chain("mail", job="backup"), secret=blind))
    assert allowed(await world.ask(apply, chain("mail", job="backup"), secret=seeing))
    assert not allowed(await world.ask(apply, chain("backup", job="mail"), secret=seeing))
    assert not allowed(await world.ask(apply, chain("mail", labels={"team": "ops"}), secret=seeing))
    assert not allowed(await world.ask(apply, chain("mail", labels={"team": "ops"}), secret=wide))


def defined(name: str, labels: dict[str, str], **spec: Any) -> pb.ApplyRequest:
    body = {"steps": [{"id": "run", "argv": ["/bin/true"]}], **spec}
    whole = {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": body}
    return pb.ApplyRequest(manifests=[pb.Manifest(json=json.dumps(whole))])


async def refusal(world: World, method: str, request: Any, secret: str) -> str:
    """The message; empty when it is allowed."""
    given = {CREDENTIAL: secret}
    try:
        await world.check.admit(
            CONTROL + method, caller=Caller("192.0.2.7", "admin-web"), about=lambda: request, given=given
        )
    except TobanError as error:
        assert error.code is ErrorCode.PERMISSION_DENIED
        return error.message
    return ""


async def test_a_trigger_on_events_is_for_who_may_see_all_events(world: World) -> None:
    edits = ("allow", "editor", OPS)
    some = await world.user("ann", edits)
    every = await world.user("bob", edits, ("allow", "viewer", EVERYTHING))
    spec = {"job": "backup", "event_type": "payroll", "payload": {"all": "{{ event.payload }}"}}
    text = json.dumps({"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "spy"}, "spec": spec})
    request = pb.ApplyRequest(manifests=[pb.Manifest(json=text)])
    assert "a trigger shows events, which belong to no job" in await refusal(world, "Apply", request, some)
    assert not await refusal(world, "Apply", request, every)


OPENING = """
INSERT INTO scheduler.webhook_targets (name, origin, form, secret, states, jobs, labels, created_by, updated_by)
VALUES ('pager', 'https://a.example', 'generic', 'x', '{}', '{}', '{}', 'x', 'x'),
       ('chat', 'https://a.example', 'generic', 'x', '{}', '{}', '{"team": "ops"}', 'x', 'x'),
       ('room', 'https://a.example', 'generic', 'x', '{}', '{}', '{"floor": "2"}', 'x', 'x')"""
CARD_GROUP = """INSERT INTO scheduler.executor_groups (name, job_labels) VALUES ('card', '{"cards": "yes"}')"""


async def test_a_label_that_opens_something_is_given_by_who_may_edit_all_jobs_with_it(world: World) -> None:
    trigger = chain("mail", labels={"export": "yes"}).manifests[0].json
    await Apply(pool=world.pool).apply([ManifestText(json=trigger)], actor="user root")
    async with autocommit(world.pool) as t:
        await t.execute(OPENING)
        await t.execute(CARD_GROUP)
    ops = await world.user("ann", ("allow", "editor", OPS))
    both = await world.user("bob", ("allow", "editor", OPS), ("allow", "editor", Selector(labels={"export": "yes"})))
    for label in ({"export": "yes"}, {"floor": "2"}, {"cards": "yes"}):
        said = await refusal(world, "Apply", defined("backup", {"team": "ops", **label}), ops)
        assert said.startswith(f"ann may not edit here: the label {'='.join(*label.items())} starts triggers of others")
    for label in ({"export": "no"}, {"size": "2"}, {}):
        assert not await refusal(world, "Apply", defined("backup", {"team": "ops", **label}), ops)
    granted = defined("backup", {"team": "ops", "export": "yes"})
    assert not await refusal(world, "Apply", granted, both)
    await Apply(pool=world.pool).apply([ManifestText(json=granted.manifests[0].json)], actor="user root")
    assert not await refusal(world, "Apply", granted, ops), "the job has the label"


async def test_a_webhook_that_is_not_for_the_job_is_named_by_who_may_edit_everything(world: World) -> None:
    async with autocommit(world.pool) as t:
        await t.execute(OPENING)
    ops = await world.user("ann", ("allow", "editor", OPS))
    for webhook, allowed_ in (("pager", False), ("room", False), ("chat", True)):
        request = defined("backup", {"team": "ops"}, notify=[{"webhook": webhook, "on": ["failed"]}])
        said = await refusal(world, "Apply", request, ops)
        assert bool(said) is not allowed_ and (allowed_ or f"the webhook {webhook} is for no label or name" in said)


SECRETS = """
INSERT INTO scheduler.secrets (name, key_id, nonce, ciphertext, jobs, created_by, updated_by)
SELECT name, '0123456789abcdef', decode(repeat('00', 12), 'hex'), decode(repeat('00', 17), 'hex'), jobs, 'x', 'x'
  FROM (VALUES ('db', '{report,backup}'::text[]), ('open', '{}'), ('other', '{mail}')) AS made (name, jobs)"""


async def test_a_list_of_secrets_shows_a_person_their_own_jobs(world: World) -> None:
    async with autocommit(world.pool) as t:
        await t.execute(SECRETS)
        await t.execute(
            "UPDATE scheduler.job_definitions SET spec = spec || '{\"secrets\": [{\"name\": \"open\"}]}' WHERE name IN ('backup', 'mail')"
        )
    listed = pb.ListSecretsResponse(
        secrets=[
            pb.Secret(name="db", jobs=["report", "backup"]),
            pb.Secret(name="open", used_by=["backup", "mail", "webhook/w"]),
            pb.Secret(name="other", jobs=["mail"], used_by=["mail"]),
        ]
    )
    ops = await world.user("ann", ("allow", "editor", OPS))
    admission = await world.ask(OPERATIONS + "ListSecrets", pb.ListSecretsRequest(), secret=ops)
    seen = await admission.visible(pb.ListSecretsResponse(secrets=listed.secrets))
    assert [(one.name, list(one.jobs), list(one.used_by)) for one in seen.secrets] == [
        ("db", ["backup"], []),
        ("open", [], ["backup"]),
    ]
    every = await world.user("bob", ("allow", "editor", EVERYTHING))
    admission = await world.ask(OPERATIONS + "ListSecrets", pb.ListSecretsRequest(), secret=every)
    assert await admission.visible(pb.ListSecretsResponse(secrets=listed.secrets)) == listed


async def test_a_new_job_does_not_get_the_secrets_of_its_name(world: World) -> None:
    async with autocommit(world.pool) as t:
        await t.execute(SECRETS)
    labelled = await world.user("ann", ("allow", "editor", OPS))
    named = await world.user("bob", ("allow", "editor", Selector(job="report")), ("allow", "editor", OPS))

    def using(job_name: str, secret: str) -> pb.ApplyRequest:
        return defined(job_name, {"team": "ops"}, secrets=[{"name": secret}])

    said = await refusal(world, "Apply", using("report", "db"), labelled)
    assert "the secret db is for a job of this name, which is new" in said
    assert not await refusal(world, "Apply", using("report", "db"), named)
    assert not await refusal(world, "Apply", using("report", "open"), labelled)
    assert not await refusal(world, "Apply", using("backup", "db"), labelled), "the job that is there"


async def test_a_priority_above_those_of_others_is_for_who_may_edit_everything(world: World) -> None:
    urgent = defined("backup", {"team": "ops"}, priority=5)
    ops = await world.user("ann", ("allow", "editor", OPS))
    assert "a priority above 0" in await refusal(world, "Apply", urgent, ops)
    assert not await refusal(world, "Apply", defined("backup", {"team": "ops"}, priority=-5), ops)
    assert "a priority above 0" in await refusal(world, "StartRuns", start("backup", priority=1000), ops)
    assert not await refusal(world, "StartRuns", start("backup", priority=-1), ops)
    await Apply(pool=world.pool).apply([ManifestText(json=urgent.manifests[0].json)], actor="user root")
    assert not await refusal(world, "Apply", urgent, ops), "what the job has"
    assert not await refusal(world, "StartRuns", start("backup", priority=5), ops)


async def runs_of(world: World, name: str, **fields: Any) -> list[int]:
    service = StartRuns(
        pool=world.pool, definitions=DefinitionCache(), payloads=PayloadValidator(), fast_path=CurrentFastPath()
    )
    return [run.run_id for run in await service.start([RunRequest(job=name, **fields)], "user root")]
