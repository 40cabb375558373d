"""Who may change some jobs reaches no others by them: what a request needs beside the right to its own jobs."""

from __future__ import annotations

import json
from typing import Any

from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_domain.access import Selector
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.tx import autocommit

OPERATIONS, CONTROL = "/toban_proto.v1.Operations/", "/toban_proto.v1.JobControl/"
EVERYTHING = Selector()
OPS = Selector(labels={"team": "ops"})


async def test_a_trigger_on_events_is_for_who_may_see_all_events(world: Any) -> None:
    edits = ("allow", "editor", OPS)
    some = await world.user("ann", edits)
    every = await world.user("bob", edits, ("allow", "viewer", EVERYTHING))
    spec = {"job": "backup", "event_type": "payroll", "payload": {"all": "{{ event.payload }}"}}
    text = json.dumps({"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "spy"}, "spec": spec})
    request = pb.ApplyRequest(manifests=[pb.Manifest(json=text)])
    assert "a trigger shows events, which belong to no job" in await world.refusal("Apply", request, some)
    assert not await world.refusal("Apply", request, every)
    all_but_one = await world.user(
        "eve", ("allow", "editor", EVERYTHING), ("deny", "viewer", Selector(labels={"team": "payroll"}))
    )
    said = await world.refusal("Apply", request, all_but_one)
    assert "a trigger shows events, which belong to no job; rule" in said and "deny viewer for label team" in said


OPENING = """
INSERT INTO scheduler.webhook_targets (name, origin, form, secret, states, jobs, labels, created_by, updated_by)
VALUES ('pager', 'https://a.example', 'generic', 'x', '{}', '{}', '{}', 'x', 'x'),
       ('chat', 'https://a.example', 'generic', 'x', '{}', '{}', '{"team": "ops"}', 'x', 'x'),
       ('room', 'https://a.example', 'generic', 'x', '{}', '{}', '{"floor": "2"}', 'x', 'x')"""
CARD_GROUP = """INSERT INTO scheduler.executor_groups (name, job_labels) VALUES ('card', '{"cards": "yes"}')"""


async def test_a_label_that_opens_something_is_given_by_who_may_edit_all_jobs_with_it(world: Any) -> None:
    trigger = world.chain("mail", labels={"export": "yes"}).manifests[0].json
    await Apply(pool=world.pool).apply([ManifestText(json=trigger)], actor="user root")
    async with autocommit(world.pool) as t:
        await t.execute(OPENING)
        await t.execute(CARD_GROUP)
    ops = await world.user("ann", ("allow", "editor", OPS))
    both = await world.user("bob", ("allow", "editor", OPS), ("allow", "editor", Selector(labels={"export": "yes"})))
    for label in ({"export": "yes"}, {"floor": "2"}, {"cards": "yes"}):
        said = await world.refusal("Apply", world.defined("backup", {"team": "ops", **label}), ops)
        assert said.startswith(f"ann may not edit here: the label {'='.join(*label.items())} starts triggers of others")
    for label in ({"export": "no"}, {"size": "2"}, {}):
        assert not await world.refusal("Apply", world.defined("backup", {"team": "ops", **label}), ops)
    granted = world.defined("backup", {"team": "ops", "export": "yes"})
    assert not await world.refusal("Apply", granted, both)
    await Apply(pool=world.pool).apply([ManifestText(json=granted.manifests[0].json)], actor="user root")
    assert not await world.refusal("Apply", granted, ops), "the job has the label"


async def test_a_webhook_that_is_not_for_the_job_is_named_by_who_may_edit_everything(world: Any) -> None:
    async with autocommit(world.pool) as t:
        await t.execute(OPENING)
    ops = await world.user("ann", ("allow", "editor", OPS))
    for webhook, allowed_ in (("pager", False), ("room", False), ("chat", True)):
        request = world.defined("backup", {"team": "ops"}, notify=[{"webhook": webhook, "on": ["failed"]}])
        said = await world.refusal("Apply", request, ops)
        assert bool(said) is not allowed_ and (allowed_ or f"the webhook {webhook} is for no label or name" in said)


SECRETS = """
INSERT INTO scheduler.secrets (name, key_id, nonce, ciphertext, jobs, created_by, updated_by)
SELECT name, '0123456789abcdef', decode(repeat('00', 12), 'hex'), decode(repeat('00', 17), 'hex'), jobs, 'x', 'x'
  FROM (VALUES ('db', '{report,backup}'::text[]), ('open', '{}'), ('other', '{mail}')) AS made (name, jobs)"""


async def test_a_list_of_secrets_shows_a_person_their_own_jobs(world: Any) -> None:
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
            pb.Secret(name="own", jobs=["backup"]),
        ]
    )
    for one in listed.secrets:
        one.last_used_at.GetCurrentTime()
    ops = await world.user("ann", ("allow", "editor", OPS))
    admission = await world.ask(OPERATIONS + "ListSecrets", pb.ListSecretsRequest(), secret=ops)
    seen = await admission.visible(pb.ListSecretsResponse(secrets=listed.secrets))
    assert [(one.name, list(one.jobs), list(one.used_by)) for one in seen.secrets] == [
        ("db", ["backup"], []),
        ("open", [], ["backup"]),
        ("own", ["backup"], []),
    ]
    assert [one.HasField("last_used_at") for one in seen.secrets] == [False, False, True]
    every = await world.user("bob", ("allow", "editor", EVERYTHING))
    admission = await world.ask(OPERATIONS + "ListSecrets", pb.ListSecretsRequest(), secret=every)
    assert await admission.visible(pb.ListSecretsResponse(secrets=listed.secrets)) == listed


async def test_a_new_job_does_not_get_the_secrets_of_its_name(world: Any) -> None:
    async with autocommit(world.pool) as t:
        await t.execute(SECRETS)
    labelled = await world.user("ann", ("allow", "editor", OPS))
    named = await world.user("bob", ("allow", "editor", Selector(job="report")), ("allow", "editor", OPS))

    def using(job_name: str, *secrets: str) -> pb.ApplyRequest:
        return world.defined(job_name, {"team": "ops"}, secrets=[{"name": one} for one in secrets])

    # Without the secret too: the second definition of the job would get it.
    for secrets in (["db"], ["open"], []):
        said = await world.refusal("Apply", using("report", *secrets), labelled)
        assert "the secret db is for a job of this name, which is new" in said
    assert not await world.refusal("Apply", using("report", "db"), named)
    assert not await world.refusal("Apply", using("export", "open"), labelled)
    assert not await world.refusal("Apply", using("backup", "db"), labelled), "the job that is there"


async def test_a_new_job_does_not_get_the_webhooks_and_triggers_of_its_name(world: Any) -> None:
    async with autocommit(world.pool) as t:
        await t.execute(OPENING)
        await t.execute("UPDATE scheduler.webhook_targets SET jobs = '{report,backup}' WHERE name = 'pager'")
    ann = await world.user("ann", ("allow", "editor", OPS))
    said = await world.refusal("Apply", world.defined("report", {"team": "ops"}), ann)
    assert "the webhook pager is for a job of this name, which is new" in said
    assert not await world.refusal("Apply", world.defined("backup", {"team": "ops"}), ann)
    trigger = world.chain("mail", job="backup").manifests[0].json
    await Apply(pool=world.pool).apply([ManifestText(json=trigger)], actor="user root")
    async with autocommit(world.pool) as t:
        await t.execute("UPDATE scheduler.event_triggers SET event_type = '@run-end:export'")
    said = await world.refusal("Apply", world.defined("export", {"team": "ops"}), ann)
    assert "the trigger after is for a job of this name, which is new" in said


async def test_a_priority_above_those_of_others_is_for_who_may_edit_everything(world: Any) -> None:
    urgent = world.defined("backup", {"team": "ops"}, priority=5)
    ops = await world.user("ann", ("allow", "editor", OPS))
    assert "a priority above 0" in await world.refusal("Apply", urgent, ops)
    assert not await world.refusal("Apply", world.defined("backup", {"team": "ops"}, priority=-5), ops)
    assert "a priority above 0" in await world.refusal("StartRuns", world.start("backup", priority=1000), ops)
    assert not await world.refusal("StartRuns", world.start("backup", priority=-1), ops)
    [run] = await world.runs_of("backup")
    assert "a priority above 0" in await world.refusal("RerunRun", pb.RerunRunRequest(id=run, priority=1000), ops)
    assert not await world.refusal("RerunRun", pb.RerunRunRequest(id=run), ops)
    assert "a priority above 0" in await world.refusal("RerunRuns", pb.RerunRunsRequest(priority=1000), ops)
    assert not await world.refusal("RerunRuns", pb.RerunRunsRequest(), ops)
    admission = await world.ask(CONTROL + "RerunRun", pb.RerunRunRequest(id=run), secret=ops)
    assert not admission.raises_priority, "a run of a higher priority is repeated with that of its job"
    await Apply(pool=world.pool).apply([ManifestText(json=urgent.manifests[0].json)], actor="user root")
    assert not await world.refusal("Apply", urgent, ops), "what the job has"
    assert not await world.refusal("StartRuns", world.start("backup", priority=5), ops)
