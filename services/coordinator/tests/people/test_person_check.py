"""Persons of calls, over real accounts and jobs: each role, scoped rules, tokens, credentials that are no longer valid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.people.accounts import NewRule
from toban_coordinator.app.people.credentials import REMEMBERED_SECONDS
from toban_coordinator.server.job_reader import JobReader
from toban_coordinator.server.person_check import may_see_every_scope, run_rights
from toban_coordinator.server.person_targets import LISTED, NAMED
from toban_domain.access import MINIMUM, Action, Effect, Role, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import autocommit
from toban_transport.call_context import set_actor
from toban_transport.person_rules import PERSON_RULES, WITHOUT_PERSON
from toban_transport.read_ticket import ReadTicketSigner, ReadTicketVerifier
from toban_transport.rules import About
from toban_transport.tls import TlsFiles

READER, CONTROL, OPERATIONS = "/toban_proto.v1.JobReader/", "/toban_proto.v1.JobControl/", "/toban_proto.v1.Operations/"
EVERYTHING = Selector()
OPS = Selector(labels={"team": "ops"})


def allowed(answer: Any) -> bool:
    assert not isinstance(answer, ErrorCode) or answer is ErrorCode.PERMISSION_DENIED
    return not isinstance(answer, ErrorCode)


def test_every_method_names_its_targets() -> None:
    assert set(NAMED) == {method for method, rule in PERSON_RULES.items() if rule.about is About.JOBS}
    assert set(LISTED) == {method for method, rule in PERSON_RULES.items() if rule.about is About.LIST}


@pytest.mark.parametrize("role", [*Role, None])
async def test_every_method_by_every_role(world: Any, role: Role | None) -> None:
    secret = await world.user("bob", *([("allow", role.value, EVERYTHING)] if role else []))
    for method, rule in PERSON_RULES.items():
        expected = rule.about is About.OWN or (role is not None and role.rank >= MINIMUM[rule.action].rank)
        assert allowed(await world.ask(method, secret=secret)) is expected, method


async def test_without_a_person(world: Any) -> None:
    for method in PERSON_RULES:
        for service in ("admin-web", "shared/toban"):
            assert await world.ask(method, service=service) is ErrorCode.UNAUTHENTICATED, method
        assert await world.ask(method, service="admin-cli") is None, method
    for method in WITHOUT_PERSON:
        assert await world.ask(method, secret="stale") is None
    assert await world.ask("/toban_proto.v1.Peer/Ping", service="coordinator") is None
    assert await world.ask("/toban_proto.v1.ExternalWork/Claim", service="external-worker") is None


async def test_the_request_is_parsed_only_for_a_person_with_the_role(world: Any) -> None:
    asked, given = world.ask, {role: await world.user(role, ("allow", role, OPS)) for role in ("viewer", "editor")}
    assert await asked(CONTROL + "Apply", pytest.fail) is ErrorCode.UNAUTHENTICATED
    assert await asked(CONTROL + "Apply", pytest.fail, secret=given["viewer"]) is ErrorCode.PERMISSION_DENIED
    assert allowed(await asked(CONTROL + "Apply", pb.ApplyRequest, secret=given["editor"]))


async def test_a_rule_for_some_jobs_is_for_those_only(world: Any) -> None:
    secret = await world.user("bob", ("allow", "editor", OPS))
    cases: list[tuple[str, Callable[[str], Any]]] = [
        (READER + "GetJob", lambda name: pb.GetJobRequest(name=name)),
        (READER + "GetSchedule", lambda name: pb.GetScheduleRequest(name=name)),
        (READER + "NextSlots", lambda name: pb.NextSlotsRequest(name=name)),
        (READER + "NextSlots", lambda name: pb.NextSlotsRequest(manifest=pb.Manifest(json=world.schedule("s", name)))),
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
        assert allowed(await world.ask(CONTROL + "StartRuns", world.start("backup", scope=scope), secret=secret))
    assert not allowed(await world.ask(CONTROL + "StartRuns", world.start("backup", ignore_limits=True), secret=secret))
    both = pb.StartRunsRequest(runs=[pb.StartRunRequest(job="backup"), pb.StartRunRequest(job="mail")])
    assert not allowed(await world.ask(CONTROL + "StartRuns", both, secret=secret))
    assert allowed(await world.ask(READER + "GetCluster", secret=secret))
    for whole in (READER + "ListEvents", CONTROL + "EmitEvent", OPERATIONS + "UpdateSetting"):
        assert not allowed(await world.ask(whole, secret=secret)), whole


async def test_the_ledger_of_a_deleted_schedule_is_for_those_who_may_see_its_job(world: Any) -> None:
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
    await Apply(pool=world.pool).apply([ManifestText(json=world.schedule("mail", "backup"))], actor="user root")
    assert not allowed(await world.ask(READER + "ListFires", fires[0], secret=secret))


async def test_a_rule_for_a_scope_is_for_runs_of_that_scope(world: Any) -> None:
    secret = await world.user("bob", ("allow", "operator", Selector(scope="account", scope_id="17")))
    for given, expected in (
        ({"scope": "account", "scope_id": "17"}, True),
        ({"scope": "account", "scope_id": "8"}, False),
        ({}, False),
    ):
        assert (
            allowed(await world.ask(CONTROL + "StartRuns", world.start("mail", **given), secret=secret)) is expected
        ), given
    for selector, days in ((Selector(job="backup", scope="system"), 0), (Selector(job="backup"), 1)):
        viewer = await world.user(f"viewer-{days}", ("allow", "viewer", selector))
        admission = await world.ask(READER + "GetJobDays", pb.GetJobDaysRequest(name="backup"), secret=viewer)
        assert len((await admission.visible(pb.JobDays(days=[pb.JobDay(failed=1)]))).days) == days


async def test_to_pass_over_limits_is_for_administrators(world: Any) -> None:
    for role, expected in (("editor", False), ("admin", True)):
        secret = await world.user(role, ("allow", role, EVERYTHING))
        assert (
            allowed(await world.ask(CONTROL + "StartRuns", world.start("mail", ignore_limits=True), secret=secret))
            is expected
        )
        assert allowed(await world.ask(CONTROL + "StartRuns", world.start("mail"), secret=secret))


async def test_a_manifest_needs_the_right_to_what_is_stored_and_to_what_it_makes(world: Any) -> None:
    secret = await world.user("bob", ("allow", "editor", OPS))

    async def may_apply(*texts: str) -> bool:
        request = pb.ApplyRequest(manifests=[pb.Manifest(json=text) for text in texts])
        return allowed(await world.ask(CONTROL + "Apply", request, secret=secret))

    assert await may_apply(world.job("backup", "ops")) and await may_apply(world.job("new", "ops"))
    assert await may_apply(world.job("new", "ops"), world.schedule("new", "new"))
    assert not await may_apply(world.job("backup", "web")), "a job is not given away"
    assert not await may_apply(world.job("mail", "ops")), "a job is not taken"
    assert not await may_apply(world.job("backup", "ops"), world.job("mail", "web"))
    assert not await may_apply(world.schedule("hourly", "mail"))
    assert not await may_apply(world.schedule("mail", "backup")), "the schedule of another job"
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
    world: Any, rules: list[tuple[str, str, Selector]], names: list[str]
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


@pytest.mark.parametrize(("selector", "every"), [(EVERYTHING, True), (Selector(scope="account", scope_id="17"), False)])
async def test_jobs_tell_nothing_of_runs_to_whose_rules_name_scopes(
    world: Any, selector: Selector, every: bool
) -> None:
    secret = await world.user(
        "bob", ("allow", "viewer", EVERYTHING), ("deny" if not every else "allow", "viewer", selector)
    )
    admission = await world.ask(READER + "ListJobs", secret=secret)
    job = pb.Job(name="backup", last_run=pb.Run(id=1), recent_runs=[pb.RunMark(id=1)])
    job.next_run_at.GetCurrentTime()
    [seen] = (await admission.visible(pb.ListJobsResponse(jobs=[job]))).jobs
    assert (bool(seen.recent_runs), seen.HasField("next_run_at"), seen.HasField("last_run")) == (every, every, every)
    assert may_see_every_scope() is every


async def test_a_token_is_bounded_by_itself_and_by_its_user(world: Any) -> None:
    await world.user("bob", ("allow", "operator", EVERYTHING))
    wanted = world.start("mail")
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
async def test_what_was_taken_away_is_gone_after_the_time_that_it_is_remembered(world: Any, change: str) -> None:
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
async def test_an_unknown_credential_is_refused(world: Any, secret: str) -> None:
    for service in ("admin-web", "admin-cli"):
        assert await world.ask(READER + "ListJobs", secret=secret, service=service) is ErrorCode.UNAUTHENTICATED


async def test_an_account_without_a_password_is_no_administrator_who_can_sign_in(world: Any) -> None:
    await world.accounts.add_user("local", display_name="", password="", actor="certificate admin-cli")
    rule = NewRule(user="local", effect=Effect.ALLOW, role=Role.ADMIN, selector=EVERYTHING)
    await world.accounts.add_rule(rule, actor="certificate admin-cli")
    assert not await world.accounts.has_administrator()
    secret, _ = await world.token("local", "admin")
    assert allowed(await world.ask(OPERATIONS + "UpdateSetting", secret=secret))


async def test_a_rerun_into_another_scope_needs_the_right_to_both(world: Any) -> None:
    [run] = await world.runs_of("backup")
    secret = await world.user("ann", ("allow", "operator", Selector(job="backup", scope="system")))
    method = CONTROL + "RerunRun"
    assert allowed(await world.ask(method, pb.RerunRunRequest(id=run), secret=secret))
    assert not allowed(await world.ask(method, pb.RerunRunRequest(id=run, scope="user", scope_id="x"), secret=secret))
    assert allowed(await world.ask(CONTROL + "NoteRun", pb.NoteRunRequest(id=run), secret=secret))


async def test_a_job_is_deleted_by_who_may_edit_all_of_its_scopes(world: Any) -> None:
    request = pb.DeleteJobRequest(name="backup")
    secret = await world.user("ann", ("allow", "editor", Selector(job="backup", scope="system")))
    assert allowed(await world.ask(CONTROL + "DeleteJob", request, secret=secret))
    await world.runs_of("backup", scope="account", scope_id="17")
    assert not allowed(await world.ask(CONTROL + "DeleteJob", request, secret=secret))


async def test_of_many_runs_each_is_checked(world: Any) -> None:
    [mine], [theirs] = await world.runs_of("backup"), await world.runs_of("mail")
    viewed = ("allow", "viewer", Selector(job="mail"))
    secret = await world.user("ann", ("allow", "operator", Selector(job="backup")), viewed)
    assert allowed(await world.ask(CONTROL + "CancelRuns", pb.CancelRunsRequest(), secret=secret))
    assert await run_rights(Action.CANCEL)([mine, theirs, 999_999]) == {mine: True, theirs: False}
    blind = await world.user("bob", ("allow", "operator", Selector(job="backup")))
    assert allowed(await world.ask(CONTROL + "RerunRuns", pb.RerunRunsRequest(), secret=blind))
    assert await run_rights(Action.RUN)([mine, theirs]) == {mine: True}


async def test_read_tickets_are_for_the_runs_that_the_person_may_see(world: Any, tls: Path) -> None:
    [mine], [theirs] = await world.runs_of("backup"), await world.runs_of("mail")
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
    [other] = await world.runs_of("mail", scope="account", scope_id="17")
    assert await ticket(scoped, mine, theirs, other) == ([other], "user carl")
    bounded, number = await world.token("bob", "viewer", OPS)
    assert await ticket(bounded, theirs, mine) == ([mine], f"user bob, token {number}")
    for runs in ([], [0], [*range(1, 1002)]):
        with pytest.raises(TobanError, match="name 1 to 1000 runs"):
            await ticket(everything, *runs)


async def test_who_lets_one_job_follow_another_may_edit_it_and_see_the_other(world: Any) -> None:
    edits = ("allow", "editor", Selector(job="mail"))
    blind = await world.user("ann", edits)
    seeing = await world.user("bob", edits, ("allow", "viewer", Selector(job="backup")))
    wide = await world.user("carl", edits, ("allow", "viewer", OPS), ("deny", "viewer", Selector(job="backup")))
    apply = CONTROL + "Apply"
    assert not allowed(await world.ask(apply, world.chain("mail", job="backup"), secret=blind))
    assert allowed(await world.ask(apply, world.chain("mail", job="backup"), secret=seeing))
    assert not allowed(await world.ask(apply, world.chain("backup", job="mail"), secret=seeing))
    assert not allowed(await world.ask(apply, world.chain("mail", labels={"team": "ops"}), secret=seeing))
    assert not allowed(await world.ask(apply, world.chain("mail", labels={"team": "ops"}), secret=wide))
