"""Steps of external workers in manifests."""

from __future__ import annotations

from typing import Any

import pytest

from toban_domain.dispatches import lock_ttl_ms, worker_type
from toban_domain.job import JobSpec
from toban_domain.schedule import RuleSpec
from toban_manifests.read import Document, find_problems, read_manifests


def no_check(rule: RuleSpec) -> list[tuple[str, str, str]]:
    return []


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}


def external(**step: Any) -> dict[str, Any]:
    return job(steps=[{"type": "external", "worker_type": "transcode", **step}])


def read(body: object) -> JobSpec:
    spec = read_manifests([Document("a.yaml", body)], check_rule=no_check)[0].spec
    assert isinstance(spec, JobSpec)
    return spec


@pytest.mark.seed(137)
def test_an_external_step_beside_one_on_an_executor() -> None:
    body = job(
        steps=[{"argv": ["true"]}, {"type": "external", "worker_type": "transcode", "lock_ttl_seconds": 5}],
        env={"A": "b"},
    )
    local, step = read(body).steps
    assert (step.type, worker_type(step), lock_ttl_ms(step)) == ("external", "transcode", 5000)
    assert local.body == {"argv": ["true"]}
    assert JobSpec.from_json(read(body).to_json()) == read(body)


def test_what_is_kept_of_the_output_concerns_external_workers_too() -> None:
    body = job(steps=[{"type": "external", "worker_type": "a"}], logs={"max_mb": 5, "redact": ["password"]})
    logs = read(body).logs
    assert (logs.max_mb, logs.redact) == (5, ("password",))


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        (job(steps=[{"type": "external"}]), "spec.steps[0].worker_type", "is missing; add `worker_type:`"),
        (external(worker_type=""), "spec.steps[0].worker_type", "is missing"),
        (external(worker_type="Trans code"), "spec.steps[0].worker_type", "is not a name"),
        (external(lock_ttl_seconds=0), "spec.steps[0].lock_ttl_seconds", "use 1 … 86400"),
        (external(heartbeat_seconds=5), "spec.steps[0].heartbeat_seconds", "`lock_ttl_seconds` says how long"),
        (external(argv=["x"]), "spec.steps[0].argv", "belongs to `type: command` and not to external"),
        (external(lock_ttl=5), "spec.steps[0].lock_ttl", "did you mean 'lock_ttl_seconds'?"),
        (job(steps=[{"argv": ["x"], "worker_type": "a"}]), "spec.steps[0].worker_type", "belongs to `type: external`"),
        (
            job(steps=[{"type": "external", "worker_type": "a"}], env={"A": "b"}),
            "spec.env",
            "external workers do all steps of this job; take it out, or add a step that runs on an executor",
        ),
    ],
)
def test_a_mistake_names_its_path_and_the_way_out(body: object, path: str, words: str) -> None:
    _, found = find_problems([Document("a.yaml", body)], check_rule=no_check)
    assert [words in problem.line() for problem in found if problem.path == path] == [True], found
