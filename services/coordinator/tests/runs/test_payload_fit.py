"""Payloads of schedules and triggers against the schemas of their jobs, at apply."""

from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def test_a_schema_that_breaks_schedules_and_triggers_is_refused_unless_forced(world: Any, make: Any) -> None:
    fits = {"properties": {"n": {"type": "string"}}}
    trigger = {"apiVersion": "toban/v1", "kind": "EventTrigger", "spec": {"event_type": "a.b", "job": "hello"}}
    texts = {"fixed": "x", "of-event": "{{ event.payload.n }}"}
    await world.apply(
        make.job(payload_schema=fits),
        make.schedule("plain", payload={"n": "x"}),
        make.schedule("fitting", payload={"m": 1}),
        make.schedule("with-template", payload={"n": "${{ slot.date }}"}),
        *[
            {**trigger, "metadata": {"name": n}, "spec": {**trigger["spec"], "payload": {"n": t}}}
            for n, t in texts.items()
        ],
    )
    with pytest.raises(TobanError) as refused:
        await world.apply(make.job(payload_schema=SCHEMA))
    assert refused.value.code is ErrorCode.PAYLOAD_INVALID
    errors = refused.value.detail["errors"]
    assert [(one["source"], one["path"], one["message"]) for one in errors] == [
        ("test.yaml, document 1", "spec.payload_schema", f'{who} would fail: payload.n: "x" is not of type "integer"')
        for who in ("trigger 'fixed'", "schedule 'plain'")
    ]
    assert all("--force" in one["hint"] for one in errors)
    # What is changed in the same apply counts as it will be.
    mended = {**trigger, "metadata": {"name": "fixed"}, "spec": {**trigger["spec"], "payload": {"n": 2}}}
    await world.apply(make.job(payload_schema=SCHEMA), make.schedule("plain", payload={"n": 1}), mended, dry_run=True)
    await world.apply(make.job(payload_schema=SCHEMA), force=True)
    # What fails already is no reason to refuse another change.
    await world.apply(make.job(payload_schema={**SCHEMA, "title": "again"}))


async def test_paused_schedules_count_and_disabled_ones_do_not(world: Any, make: Any) -> None:
    """A schedule is resumed without a check, and enabled by an apply, which checks its payload."""
    payload = {"n": "x"}
    spec = {"event_type": "a.b", "job": "hello", "payload": payload, "enabled": False}
    trigger = {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "off"}, "spec": spec}
    await world.apply(
        make.job(),
        make.schedule("paused", payload=payload),
        make.schedule("failed", payload=payload),
        make.schedule("disabled", payload=payload, enabled=False),
        trigger,
    )
    await world.sql("UPDATE scheduler.schedules SET status = name WHERE name IN ('paused', 'failed')")
    with pytest.raises(TobanError) as refused:
        await world.apply(make.job(payload_schema=SCHEMA))
    messages = [one["message"].partition(" would")[0] for one in refused.value.detail["errors"]]
    assert messages == ["schedule 'failed'", "schedule 'paused'"]
    await world.apply(
        make.job(payload_schema=SCHEMA), *[make.schedule(name, payload={"n": 1}) for name in ("paused", "failed")]
    )
    for enabled in (make.schedule("disabled", payload=payload), {**trigger, "spec": {**spec, "enabled": True}}):
        with pytest.raises(TobanError, match='is not of type "integer"'):
            await world.apply(enabled)


async def test_a_default_that_goes_away_breaks_what_needs_it(world: Any, make: Any) -> None:
    schema = {"required": ["n"]}
    await world.apply(make.job(payload_schema=schema, default_payload={"n": 1}), make.schedule("bare"))
    with pytest.raises(TobanError, match="schedule 'bare' would fail: payload: \"n\" is a required property"):
        await world.apply(make.job(payload_schema=schema))


async def test_a_payload_that_does_not_fit_names_its_document_and_no_invented_value(world: Any, make: Any) -> None:
    payload = {"n": "${{ slot.date }}", "m": {"k": "x"}}
    schema = {"properties": {**SCHEMA["properties"], "m": {"properties": {"k": {"type": "null"}}}}}
    with pytest.raises(TobanError) as refused:
        await world.apply(make.job(payload_schema=schema), make.schedule(payload=payload))
    errors = {one["path"]: one for one in refused.value.detail["errors"]}
    assert {one["source"] for one in errors.values()} == {"test.yaml, document 2"}
    assert errors["spec.payload.n"]["message"] == "the value of '${{ slot.date }}' is not of type \"integer\""
    assert errors["spec.payload.n"]["hint"] == "change it, or `payload_schema` of job 'hello'"
    assert "spec.payload.m.k" in errors and "2026" not in str(refused.value.detail)
    with pytest.raises(TobanError, match=r"document 2: spec.payload.m.k: \"x\" is not of type \"null\"; change it"):
        await world.apply(make.job(payload_schema=schema), make.schedule(payload={"m": {"k": "x"}}))
