"""Manifests: sound ones become specs, wrong ones say everything that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import ExponentialBackoff, JobSpec, LogSpec, RetrySpec
from toban_domain.schedule import CatchUpSpec, RuleSpec, ScheduleSpec
from toban_manifests.read import Document, find_problems, read_manifests


def no_check(rule: RuleSpec) -> list[tuple[str, str, str]]:
    return []


def job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": {"steps": [{"argv": ["true"]}], **spec},
    }


def python(**step: Any) -> dict[str, Any]:
    return job(steps=[{"type": "python", "callable": "a:b", **step}])


def schedule(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "toban/v1", "kind": "Schedule", "metadata": {"name": "s"}, "spec": {"job": "x", **spec}}


def read(body: object) -> Any:
    return read_manifests([Document("a.yaml", body)], check_rule=no_check)[0].spec


def problems(*bodies: object) -> list[tuple[str, str]]:
    _, found = find_problems([Document("a.yaml", body) for body in bodies], check_rule=no_check)
    return [(problem.path, problem.line()) for problem in found]


@pytest.mark.seed(124, 128)
def test_a_full_job() -> None:
    body = job(
        enabled=False,
        steps=[
            {"id": "one", "name": "First", "argv": ["tar", "-c"], "timeout_seconds": 5, "cancelable": False},
            {"argv": ["true"], "type": "command", "heartbeat_seconds": 30},
            {"type": "python", "callable": "pack.age:Class.make", "python_path": ["/srv", "/srv/lib"]},
        ],
        payload_schema={"type": "object"},
        default_payload={"a": 1},
        env={"LANG": "C"},
        working_dir="/srv",
        timeout_seconds=60,
        result_schema={"type": "object"},
        retry={
            "max_attempts": 3,
            "backoff_seconds": {"initial": 1, "multiplier": 3, "max": 20, "jitter": 0.5},
            "from": "failed_step",
        },
        cancel={"mode": "cooperative", "grace_seconds": 2.5},
        concurrency={"policy": "allow"},
        priority=-5,
        selector={"labels": {"zone": "a"}},
        isolation="isolated",
        on_lease_loss="kill",
        lease_loss_grace_seconds=4,
        max_lost=0,
        max_wait_seconds=10,
        skip_late_after_seconds=0,
        allow_shell=True,
        logs={"max_mb": 5, "max_lines_per_second": 0, "redact": ["TOKEN", "password", "TOKEN"]},
    )
    body["metadata"] |= {"description": "text", "labels": {"team": "ops"}}
    spec = read(body)
    assert isinstance(spec, JobSpec)
    assert (spec.name, spec.description, spec.labels, spec.enabled) == ("x", "text", {"team": "ops"}, False)
    assert [(step.id, step.body["argv"]) for step in spec.steps[:2]] == [("one", ["tar", "-c"]), ("step-2", ["true"])]
    assert spec.steps[2].body == {"callable": "pack.age:Class.make", "python_path": ["/srv", "/srv/lib"]}
    assert spec.retry == RetrySpec(
        max_retries=2,
        backoff=ExponentialBackoff(initial=1, multiplier=3, maximum=20, jitter=0.5),
        from_step="failed_step",
    )
    assert spec.logs == LogSpec(max_mb=5, max_lines_per_second=0, redact=("TOKEN", "password"))
    assert (spec.cancel.mode, spec.cancel.grace_seconds, spec.max_lost, spec.skip_late_after_seconds) == (
        "cooperative",
        2.5,
        0,
        0,
    )
    assert [(step.cancelable, step.heartbeat_seconds) for step in spec.steps] == [(False, 0), (True, 30), (True, 0)]
    assert spec.result_schema == {"type": "object"}
    assert (spec.isolation, spec.selector.isolation) == ("isolated", "isolated")
    assert JobSpec.from_json(spec.to_json()) == spec


def test_the_least_job() -> None:
    assert read(job()) == JobSpec.from_json({"name": "x", "steps": [{"id": "step-1", "argv": ["true"]}]})


@pytest.mark.seed(44, 146)
def test_a_full_schedule() -> None:
    spec = read(
        schedule(
            cron="0 3 * * *",
            timezone="Europe/Berlin",
            dst={"gap": "skip"},
            payload={"a": 1},
            catch_up={"policy": "all", "max": 5},
        )
    )
    assert isinstance(spec, ScheduleSpec)
    assert spec.rule == RuleSpec(cron="0 3 * * *", timezone="Europe/Berlin", gap="skip")
    assert spec.catch_up == CatchUpSpec(policy="all", max=5)
    assert read(schedule(interval_seconds=5, catch_up="one")).catch_up.policy == "one"


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        ([], "", "must be a mapping, is a list"),
        (None, "", "must be a mapping, is nothing"),
        ({}, "apiVersion", "is missing"),
        ({"apiVersion": "toban/v2"}, "apiVersion", "this version reads toban/v1"),
        ({"apiVersion": "toban/v1", "kind": "job"}, "kind", "did you mean 'Job'?"),
        ({"apiVersion": "toban/v1", "kind": "Calendar"}, "kind", "not available in this version"),
        ({"apiVersion": "toban/v1"}, "kind", "is missing; write Job or Schedule or EventTrigger after `kind:`"),
        (
            {"apiVersion": "toban/v1", "kind": ""},
            "kind",
            "is empty; write Job or Schedule or EventTrigger after `kind:`",
        ),
        (job() | {"kind": " "}, "kind", "use Job or Schedule"),
        (job() | {"apiVersion": ""}, "apiVersion", "is empty; write a value after `apiVersion:`"),
        (job() | {"metadata": {"name": ""}}, "metadata.name", "is empty; write a value after `name:`"),
        (job() | {"metadata": ""}, "metadata", "must be a mapping, is text"),
        (job() | {"spec": ""}, "spec", "must be a mapping, is text"),
        (job(steps=""), "spec.steps", "is empty; add `steps:`"),
        (python(callable=""), "spec.steps[0].callable", "does not name a function"),
        (schedule(interval_seconds=5, job=""), "spec.job", "is empty; write a value after `job:`"),
        (job(logs={"redact": "TOKEN"}), "spec.logs.redact", "must be a list, is text; write [NAME]"),
        (job(logs={"redact": ["A", ""]}), "spec.logs.redact[1]", "is not a name"),
        (job(logs={"redact": ["A"] * 101}), "spec.logs.redact", "use at most 100"),
        (job(logs={"max_bytes": 5}), "spec.logs.max_bytes", "did you mean 'max_mb'?"),
        (job(log_limits={}), "spec.log_limits", "did you mean 'logs'?"),
        (job() | {"metadata": {}}, "metadata.name", "is missing"),
        (job() | {"metadata": {"name": "-x"}}, "metadata.name", "is not a name"),
        (job() | {"metadata": {"name": "x", "labels": {"a": 1}}}, "metadata.labels.a", 'put it into quotes: a: "1"'),
        (job() | {"metadata": {"name": "x", "labels": {"a": True}}}, "metadata.labels.a", 'a: "true"'),
        (job() | {"spec": None}, "spec.steps", "is missing"),
        (job() | {"sepc": {}}, "sepc", "did you mean 'spec'?"),
        (job(steps=[]), "spec.steps", "at least one step"),
        (job(steps=["true"]), "spec.steps[0]", "must be a mapping, is text"),
        (job(steps=[{"argv": "tar -c"}]), "spec.steps[0].argv", "write ['tar', '-c']"),
        (job(steps=[{"argv": ""}]), "spec.steps[0].argv", 'write argv: ["program", "argument"]'),
        (job(steps=[{"argv": ["sleep", 5]}]), "spec.steps[0].argv[1]", 'put it into quotes: "5"'),
        (job(steps=[{"argv": [""]}]), "spec.steps[0].argv[0]", "not empty"),
        (job(steps=[{"argv": ["a\0"]}]), "spec.steps[0].argv[0]", "must be text"),
        (job(steps=[{"run": ["true"]}]), "spec.steps[0].argv", "is missing"),
        (job(steps=[{"argv": ["bash", "x"]}]), "spec.steps[0].argv", "allow_shell: true"),
        (job(steps=[{"type": "python", "argv": ["x"]}]), "spec.steps[0].argv", "belongs to `type: command`"),
        (job(steps=[{"argv": ["x"], "callable": "a:b"}]), "spec.steps[0].callable", "belongs to `type: python`"),
        (job(steps=[{"type": "python"}]), "spec.steps[0].callable", "is missing"),
        (job(steps=[{"type": "python", "callable": "a.b.c"}]), "spec.steps[0].callable", "did you mean 'a.b:c'?"),
        (job(steps=[{"type": "python", "callable": "a b:c"}]), "spec.steps[0].callable", "package.module:function"),
        (job(steps=[{"type": "python", "callable": "os:system"}]), "spec.steps[0].callable", "`allow_shell: true`"),
        (python(python_path="."), "spec.steps[0].python_path", "must be a list of folders"),
        (python(python_path=["lib"]), "spec.steps[0].python_path[0]", "is not absolute"),
        (python(python_path=[""]), "spec.steps[0].python_path[0]", "must be a folder"),
        (python(function="a:b"), "spec.steps[0].function", "did you mean 'callable'?"),
        (job(steps=[{"type": "comand", "argv": ["x"]}]), "spec.steps[0].type", "did you mean 'command'?"),
        (job(steps=[{"id": "a", "argv": ["x"]}, {"id": "a", "argv": ["x"]}]), "spec.steps[1].id", "is used twice"),
        (job(timeout_seconds="5"), "spec.timeout_seconds", "must be a whole number, is '5'"),
        (job(timeout_seconds=1.5), "spec.timeout_seconds", "must be a whole number, is 1.5"),
        (job(timeout_seconds=True), "spec.timeout_seconds", "must be a whole number"),
        (job(timeout_seconds=-1), "spec.timeout_seconds", "use 0 …"),
        (job(timeoutSeconds=1), "spec.timeoutSeconds", "did you mean 'timeout_seconds'?"),
        (job(enabled="true"), "spec.enabled", "must be true or false"),
        (job(retry={"max_retries": 1, "max_attempts": 2}), "spec.retry.max_attempts", "keep one"),
        (job(retry={"backoff_seconds": []}), "spec.retry.backoff_seconds", "is an empty list; write [1, 5, 30]"),
        (job(retry={"backoff_seconds": 5}), "spec.retry.backoff_seconds", "list of seconds"),
        (job(retry={"backoff_seconds": [1, "x"]}), "spec.retry.backoff_seconds[1]", "use seconds"),
        (job(retry={"backoff_seconds": {"initial": -1}}), "spec.retry.backoff_seconds.initial", "is -1"),
        (job(retry={"from": "last_step"}), "spec.retry.from", "did you mean 'first_step'?"),
        (job(retry=3), "spec.retry", "must be a mapping"),
        (job(cancel={"mode": "ask"}), "spec.cancel.mode", "is 'ask'; use one of kill"),
        (job(cancel={"mode": "coperative"}), "spec.cancel.mode", "did you mean 'cooperative'?"),
        (
            job(steps=[{"argv": ["x"], "heartbeat": 5}]),
            "spec.steps[0].heartbeat",
            "did you mean 'heartbeat_seconds'?",
        ),
        (job(cancel={"grace_seconds": "1s"}), "spec.cancel.grace_seconds", "must be a number"),
        (
            job(concurrency={"policy": "replace"}, cancel={"supported": False}),
            "spec.concurrency.policy",
            "can be cancelled",
        ),
        (job(concurrency={"policy": "reject_same_scope"}), "spec.concurrency.policy", "needs dedupe_keys"),
        (job(concurrency={"policy": "allow", "dedupe_keys": ["a"]}), "spec.concurrency.dedupe_keys", "no effect"),
        (job(concurrency={"dedupe_keys": []}), "spec.concurrency.dedupe_keys", "list of names"),
        (job(concurrency={"dedupe_keys": [5]}), "spec.concurrency.dedupe_keys[0]", "scope_id"),
        (job(concurrency={"limit_key": "a"}), "spec.concurrency.limit_key", "needs limit_per_key"),
        (job(concurrency={"limit_per_key": 1}), "spec.concurrency.limit_per_key", "needs limit_key"),
        (
            job(
                concurrency={"limit_key": "custmer", "limit_per_key": 1},
                payload_schema={"properties": {"customer": {}}},
            ),
            "spec.concurrency.limit_key",
            "did you mean 'customer'?",
        ),
        (job(concurrency={"pools": {"a b": 1}}), "spec.concurrency.pools", "name of a pool"),
        (job(concurrency={"pools": {"a": 0}}), "spec.concurrency.pools.a", "1 … 1000000"),
        (
            job(concurrency={"start_rate": {"runs": 1, "per_seconds": 0}}),
            "spec.concurrency.start_rate.per_seconds",
            "1 …",
        ),
        (job(concurrency={"policy": "forbids"}), "spec.concurrency.policy", "did you mean 'forbid'?"),
        (job(concurrency={"limit": -2}), "spec.concurrency.limit", "use -1 … 1000000"),
        (job(on_lease_loss="continue"), "spec.on_lease_loss", "continue needs idempotent: true"),
        (job(on_lease_loss="continue", idempotent=False), "spec.on_lease_loss", "continue needs idempotent: true"),
        (job(isolation="shared"), "spec.isolation", "any"),
        (job(on_lease_loss="freez"), "spec.on_lease_loss", "did you mean 'freeze'?"),
        (job(idempotent="yes"), "spec.idempotent", "must be true or false"),
        (job(lost_after_seconds=5), "spec.lost_after_seconds", "needs on_lease_loss: continue"),
        (
            job(on_lease_loss="continue", idempotent=True, lost_after_seconds=0),
            "spec.lost_after_seconds",
            "use 1 …",
        ),
        (job(lease_loss_grace_seconds=3), "spec.lease_loss_grace_seconds", "needs on_lease_loss: kill"),
        (
            job(on_lease_loss="freeze", lease_loss_grace_seconds=3),
            "spec.lease_loss_grace_seconds",
            "needs on_lease_loss: kill",
        ),
        (job(on_lease_loss="kill", lease_loss_grace_seconds=301), "spec.lease_loss_grace_seconds", "use 0 … 300"),
        (job(env={"TOBAN_X": "1"}), "spec.env.TOBAN_X", "set by the executor"),
        (job(env={"1X": "1"}), "spec.env", "is not a name of a variable"),
        (job(env={"X": 1}), "spec.env.X", "must be text"),
        (job(working_dir="rel"), "spec.working_dir", "is not absolute"),
        (job(default_payload={"a": "x" * 40_000}), "spec.default_payload", "the limit is 32768"),
        (job(default_payload=[1]), "spec.default_payload", "must be a mapping"),
        (job(payload_schema="object"), "spec.payload_schema", "must be a mapping"),
        (schedule(), "spec", "has no rule"),
        (schedule(cron="* * * * *", interval_seconds=5), "spec", "has 2 rules: interval_seconds, cron"),
        (schedule(interval_seconds=0), "spec.interval_seconds", "is 0"),
        (schedule(cron=5), "spec.cron", "must be text"),
        (schedule(daily_at=180), "spec.daily_at", "put it into quotes"),
        (schedule(interval_seconds=5, dst={"gap": "jump"}), "spec.dst.gap", "use one of skip, shift, run_after"),
        (schedule(interval_seconds=5, catch_up="never"), "spec.catch_up", "use one of"),
        (schedule(interval_seconds=5, jitter=3), "spec.jitter", "not available in this version"),
        (schedule(interval_seconds=5, calendars=["x"]), "spec.calendars", "not available in this version"),
        (schedule(interval_seconds=5, job=None), "spec.job", "is missing"),
        (schedule(interval_seconds=5, definition="x"), "spec.definition", "did you mean 'job'?"),
        (schedule(interval_seconds=5, tz="UTC"), "spec.tz", "did you mean 'timezone'?"),
    ],
)
def test_a_mistake_names_its_path_and_the_way_out(body: object, path: str, words: str) -> None:
    found = dict(problems(body))
    assert path in found
    assert words in found[path]
    assert found[path].startswith("a.yaml")
    assert "\n" not in found[path]


def test_all_mistakes_of_all_documents_are_told() -> None:
    with pytest.raises(TobanError) as caught:
        read_manifests([Document("a", job(enabled=1, retries=2)), Document("b", schedule())], check_rule=no_check)
    assert caught.value.code is ErrorCode.MANIFEST_INVALID
    told = [(item["source"], item["path"]) for item in caught.value.detail["errors"]]
    assert told == [("a", "spec.enabled"), ("a", "spec.retries"), ("b", "spec")]
    assert caught.value.message.endswith("(and 2 more)")


def test_detail_stays_within_what_metadata_carries() -> None:
    bodies = [Document(f"file-{number}", schedule()) for number in range(200)]
    with pytest.raises(TobanError) as caught:
        read_manifests(bodies, check_rule=no_check)
    detail = caught.value.detail
    assert len(str(detail)) < 4096
    assert detail["left_out"] + len(detail["errors"]) == 399


def test_two_of_one_name() -> None:
    assert problems(job(), schedule(interval_seconds=5), job())[0][0] == "metadata.name"
    assert problems(job(), schedule(interval_seconds=5) | {"metadata": {"name": "x"}}) == []


def test_the_rule_is_checked_by_the_caller() -> None:
    def check(rule: RuleSpec) -> list[tuple[str, str, str]]:
        return [("cron", "never fires", "another date")] if rule.cron else [("gap", "odd", "")]

    for body, path in ((schedule(cron="0 0 30 2 *"), "spec.cron"), (schedule(interval_seconds=3), "spec.dst.gap")):
        with pytest.raises(TobanError) as caught:
            read_manifests([Document("a.yaml", body)], check_rule=check)
        assert caught.value.code is ErrorCode.SCHEDULE_INVALID
        assert caught.value.detail["errors"][0]["path"] == path


def test_mistakes_of_one_kind_give_their_code() -> None:
    def check(rule: RuleSpec) -> list[tuple[str, str, str]]:
        return [("cron", "never fires", "another date")] if rule.cron else []

    rule = schedule(cron="0 0 30 2 *")
    large = job(default_payload={"a": "x" * 40_000})
    for bodies, code in (
        ([rule, rule | {"metadata": {"name": "b"}}], ErrorCode.SCHEDULE_INVALID),
        ([large], ErrorCode.PAYLOAD_TOO_LARGE),
        ([job(default_payload={"a": "\0"})], ErrorCode.PAYLOAD_INVALID),
        ([rule, large], ErrorCode.MANIFEST_INVALID),
        ([rule, job(timeout=5)], ErrorCode.MANIFEST_INVALID),
        ([schedule(cron="0 0 30 2 *", jub="x")], ErrorCode.MANIFEST_INVALID),
    ):
        with pytest.raises(TobanError) as caught:
            read_manifests([Document("a.yaml", body) for body in bodies], check_rule=check)
        assert caught.value.code is code


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
JOB_KEYS = (
    "steps",
    "enabled",
    "payload_schema",
    "default_payload",
    "env",
    "retry",
    "cancel",
    "concurrency",
    "selector",
    "isolation",
    "priority",
)
SCHEDULE_KEYS = ("job", "cron", "interval_seconds", "timezone", "dst", "payload", "catch_up", "weekly_at")


@given(
    kind=st.sampled_from(["Job", "Schedule"]),
    metadata=json_values,
    spec=st.dictionaries(st.sampled_from(JOB_KEYS + SCHEDULE_KEYS), json_values, max_size=6),
)
def test_no_input_breaks_the_reader(kind: str, metadata: Any, spec: dict[str, Any]) -> None:
    body = {"apiVersion": "toban/v1", "kind": kind, "metadata": metadata, "spec": spec}
    manifests, found = find_problems([Document("a.yaml", body)], check_rule=no_check)
    assert bool(manifests) != bool(found)
    for manifest in manifests:
        manifest.spec.to_json()


def test_a_document_that_is_nested_too_deeply_is_a_mistake_of_its_own() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = {"a": deep}
    found = problems(job(env={"A": deep}))
    assert len(found) == 1 and ("nested too deeply" in found[0][1] or "spec.env" in found[0][0])


@pytest.mark.parametrize("kind", ["", None, "job", "Calendar", 5, [], {}])
def test_no_document_is_left_out_silently(kind: Any) -> None:
    found, mistakes = find_problems([Document("a.yaml", job() | {"kind": kind})], check_rule=no_check)
    assert not found and [one.path for one in mistakes] == ["kind"]


@pytest.mark.parametrize(
    ("body", "choices"),
    [
        (job(steps=[{"argv": ["x"], "type": ""}]), "command, python, django, http, container, kubernetes, external"),
        (job(concurrency={"policy": ""}), "allow, forbid, replace, queue, reject_same_scope"),
        (job(on_lease_loss=""), "freeze, kill, continue"),
    ],
)
def test_the_remedy_names_no_value_that_this_version_refuses(body: Any, choices: str) -> None:
    [(_, message)] = problems(body)
    assert message.endswith(f"is ''; use one of {choices}")


@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb", "a\0b"])
def test_texts_that_cannot_be_stored_are_refused_here(bad: str) -> None:
    bodies = {
        "metadata.description": {**job(), "metadata": {"name": "x", "description": bad}},
        "spec.steps[0].argv[1]": job(steps=[{"argv": ["echo", bad]}]),
        "spec.env.A": job(env={"A": bad}),
        "spec.working_dir": job(working_dir=f"/{bad}"),
    }
    for path, body in bodies.items():
        [(found, line)] = problems(body)
        assert found == path and "lone surrogate" in line, line
