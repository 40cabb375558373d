"""Specs: canonical JSON both ways, retries, concurrency, selectors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.concurrency import StartRate
from toban_domain.job import (
    CancelSpec,
    ConcurrencySpec,
    ExponentialBackoff,
    JobSpec,
    LogSpec,
    RetrySpec,
    SelectorSpec,
    StepSpec,
)
from toban_domain.payload import canonical_json
from toban_domain.schedule import CatchUpSpec, RuleSpec, ScheduleSpec

texts = st.text(max_size=8)
maps = st.dictionaries(texts, texts, max_size=3)
seconds = st.integers(0, 10_000)
payloads = st.dictionaries(texts, st.one_of(texts, st.integers(), st.booleans(), st.none()), max_size=3)
delays = st.floats(0, 1e5)
backoffs = st.one_of(
    st.lists(delays, max_size=4).map(tuple),
    st.builds(ExponentialBackoff, initial=delays, multiplier=st.floats(1, 100), maximum=delays, jitter=st.floats(0, 1)),
)
steps = st.builds(
    StepSpec,
    id=texts,
    name=texts,
    timeout_seconds=seconds,
    cancelable=st.booleans(),
    body=st.fixed_dictionaries({"argv": st.lists(texts, min_size=1, max_size=3)}, optional={"http": payloads}),
)
jobs = st.builds(
    JobSpec,
    name=texts,
    steps=st.lists(steps, min_size=1, max_size=3).map(tuple),
    description=texts,
    labels=maps,
    enabled=st.booleans(),
    payload_schema=st.one_of(st.none(), payloads),
    default_payload=payloads,
    env=maps,
    working_dir=texts,
    timeout_seconds=seconds,
    retry=st.builds(RetrySpec, max_retries=st.integers(0, 9), backoff=backoffs),
    cancel=st.builds(
        CancelSpec, supported=st.booleans(), mode=st.sampled_from(["kill", "cooperative"]), grace_seconds=delays
    ),
    concurrency=st.builds(ConcurrencySpec, st.sampled_from(["", "allow", "forbid"])),
    priority=st.integers(-9, 9),
    selector=st.builds(SelectorSpec, maps),
    isolation=st.sampled_from(["any", "isolated"]),
    on_lease_loss=st.sampled_from(["", "freeze", "kill"]),
    lease_loss_grace_seconds=delays,
    max_lost=st.integers(0, 9),
    max_wait_seconds=seconds,
    skip_late_after_seconds=st.one_of(st.none(), seconds),
    allow_shell=st.booleans(),
    logs=st.builds(
        LogSpec, max_mb=seconds, max_lines_per_second=seconds, redact=st.lists(texts, max_size=2).map(tuple)
    ),
)
schedules = st.builds(
    ScheduleSpec,
    name=texts,
    job=texts,
    rule=st.one_of(
        st.builds(RuleSpec, interval_seconds=st.integers(1, 100)),
        st.builds(RuleSpec, hourly_at_minute=st.integers(0, 59), timezone=texts),
        st.builds(
            RuleSpec,
            cron=texts,
            gap=st.sampled_from(["skip", "shift", "run_after"]),
            fold=st.sampled_from(["first", "second", "both"]),
            end=texts,
        ),
    ),
    description=texts,
    labels=maps,
    enabled=st.booleans(),
    payload=payloads,
    scope=st.sampled_from(["system", "user", "account"]),
    scope_id=texts,
    catch_up=st.builds(CatchUpSpec, policy=st.sampled_from(["all", "one", "skip"]), max=st.integers(1, 200)),
)


@given(jobs)
def test_jobs_survive_json(job: JobSpec) -> None:
    stored = canonical_json(job.to_json())
    assert JobSpec.from_json(json.loads(stored)) == job
    assert canonical_json(JobSpec.from_json(json.loads(stored)).to_json()) == stored


@given(schedules)
def test_schedules_survive_json(schedule: ScheduleSpec) -> None:
    stored = canonical_json(schedule.to_json())
    assert ScheduleSpec.from_json(json.loads(stored)) == schedule
    assert canonical_json(ScheduleSpec.from_json(json.loads(stored)).to_json()) == stored


def test_defaults_are_left_out_so_that_hashes_outlive_new_fields() -> None:
    job = JobSpec(name="x", steps=(StepSpec(id="a", body={"argv": ["true"]}),))
    assert job.to_json() == {"name": "x", "steps": [{"id": "a", "argv": ["true"], "type": "command"}]}
    schedule = ScheduleSpec(name="s", job="x", rule=RuleSpec(interval_seconds=5))
    assert schedule.to_json() == {"name": "s", "job": "x", "interval_seconds": 5}


def test_keys_of_a_newer_release_are_ignored() -> None:
    data = JobSpec(name="x", steps=(StepSpec(id="a", body={"argv": ["true"]}),)).to_json() | {"colour": "red"}
    assert JobSpec.from_json(data).name == "x"


@pytest.mark.seed(48, 131)
@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ((), [0, 0, 0, 0]),
        ((1.0, 5.0), [1, 5, 5, 5]),
        (ExponentialBackoff(initial=1, multiplier=3, maximum=10), [1, 3, 9, 10]),
    ],
)
def test_delays_before_retries(backoff: tuple[float, ...] | ExponentialBackoff, delays: list[float]) -> None:
    spec = RetrySpec(max_retries=4, backoff=backoff)
    assert [spec.delay_seconds(retry) for retry in (1, 2, 3, 4)] == delays
    assert spec.max_attempts == 5


@given(st.integers(1, 100_000), st.floats(0, 1), st.floats(0, 1))
def test_jitter_stays_within_its_share(retry: int, jitter: float, spread: float) -> None:
    rule = ExponentialBackoff(initial=2, multiplier=2, maximum=60, jitter=jitter)
    middle = min(2.0 * 2.0 ** min(retry - 1, 100), 60)
    assert (
        middle * (1 - jitter) - 1e-6
        <= RetrySpec(backoff=rule).delay_seconds(retry, spread=spread)
        <= middle * (1 + jitter) + 1e-6
    )


def test_concurrency_by_origin() -> None:
    assert ConcurrencySpec().policy_for("slot") == "forbid"
    assert ConcurrencySpec().policy_for("demand") == "allow"
    assert ConcurrencySpec("allow").policy_for("slot") == "allow"
    assert ConcurrencySpec("forbid").policy_for("demand") == "forbid"


def test_a_group_is_of_equal_keys_of_one_schedule_or_of_the_job() -> None:
    def group(spec: ConcurrencySpec, payload: str = "{}", schedule: int | None = None) -> str | None:
        return spec.group(payload, scope="account", scope_id="17", schedule_id=schedule)

    assert group(ConcurrencySpec("forbid"), schedule=5) is None and group(ConcurrencySpec()) is None
    assert group(ConcurrencySpec("queue")) == "job" and group(ConcurrencySpec("replace"), schedule=5) == "schedule:5"
    keyed = ConcurrencySpec("queue", dedupe_keys=("scope_id", "target"))
    assert group(keyed, '{"target": {"b": 1, "a": 2}}') == 'key:["17",{"a":2,"b":1}]'
    assert group(keyed, "{}", schedule=5) == 'key:["17",null]'
    long = group(keyed, '{"target": "' + "x" * 500 + '"}')
    assert long is not None and len(long) < 60 and long != group(keyed, '{"target": "' + "x" * 501 + '"}')


def test_concurrency_keeps_its_form() -> None:
    full = ConcurrencySpec(
        "queue",
        dedupe_keys=("a",),
        limit=3,
        limit_key="a",
        limit_per_key=1,
        pools={"p": 2},
        start_rate=StartRate(runs=5, per_seconds=9),
    )
    assert ConcurrencySpec.from_json(full.to_json()) == full and ConcurrencySpec().to_json() == {}
    assert full.has_limits and not full.is_plain and ConcurrencySpec("forbid").is_plain


def test_selectors() -> None:
    selector = SelectorSpec({"zone": "a"})
    assert selector.fits({"zone": "a", "disk": "fast"})
    assert not selector.fits({"zone": "b"})
    assert not selector.fits({})
    assert SelectorSpec().fits({})
    engine = {"toban.dev/steps": "container", "zone": "a"}
    assert not selector.fits(engine), "an executor with an engine runs jobs with containers only"
    containers = SelectorSpec({"zone": "a"}, steps="container")
    assert containers.fits(engine)
    assert not containers.fits({"zone": "a"})
    assert not containers.fits({"toban.dev/steps": "container"})
    assert containers.needed == engine
    job = JobSpec.from_json({"name": "x", "steps": [{"id": "a", "type": "container", "container": {"image": "b"}}]})
    assert job.selector.steps == "container" and JobSpec.from_json(job.to_json()) == job


def test_what_happens_on_lease_loss_when_nothing_is_said() -> None:
    assert JobSpec(name="x", steps=()).lease_loss_action == "freeze"
    assert JobSpec(name="x", steps=(), on_lease_loss="kill").lease_loss_action == "kill"
