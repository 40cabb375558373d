"""Executors for kubernetes steps in the chart: which rights they have, where, and that nothing else gets them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_domain.outcome import AttemptKey
from toban_executor.decide.kubernetes_job import job_name, labels, manifest
from toban_testing.k8s_objects import Object, pods

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "toban"
LEAST = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}}
API = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
STEPS = {"enabled": True, "namespace": "batch", "images": ["a/*", "b:1"], "serviceAccounts": ["report"], "to": API}
NAME = "toban-kubernetes-steps"


def values(**steps: Any) -> Object:
    return {**LEAST, "executor": {"kubernetes": {**STEPS, **steps}}}


def test_there_are_no_rights_unless_they_are_asked_for(least: list[Object]) -> None:
    assert not {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} & {found["kind"] for found in least}


def test_the_rights_are_those_of_the_program_in_one_namespace(chart: Any, one: Any) -> None:
    objects = chart.render(values())
    role = one(objects, "Role", NAME)
    assert {found["kind"] for found in objects if "rbac" in found["apiVersion"]} == {"Role", "RoleBinding"}
    assert role["metadata"]["namespace"] == "batch"
    assert {tuple(rule["resources"]): set(rule["verbs"]) for rule in role["rules"]} == {
        ("jobs",): {"create", "get", "list", "watch", "patch", "delete"},
        ("pods",): {"get", "list", "watch"},
        ("pods/log",): {"get"},
    }
    binding = one(objects, "RoleBinding", NAME)
    assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) == ("batch", NAME)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "jobs"}]
    assert one(objects, "ServiceAccount", NAME)["metadata"]["namespace"] == "jobs"


def test_only_the_executor_has_the_token_and_its_variables(chart: Any) -> None:
    objects = chart.render(values())
    for component, spec in pods(objects):
        mounts = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
        assert ("kubernetes-token" in mounts, spec["serviceAccountName"] == NAME) == (component == "executor",) * 2
        assert spec["automountServiceAccountToken"] is False
        variables = spec["containers"][0]["env"]
        assert any("KUBERNETES" in one["name"] for one in variables) == (component == "executor")
    [executor] = [spec for component, spec in pods(objects) if component == "executor"]
    variables = {one["name"]: one.get("value") for one in executor["containers"][0]["env"]}
    assert {name: value for name, value in variables.items() if "KUBERNETES" in name} == {
        "SCHEDULER_KUBERNETES_API": "https://kubernetes.default.svc",
        "SCHEDULER_KUBERNETES_NAMESPACES": "batch",
        "SCHEDULER_KUBERNETES_IMAGES": "a/*,b:1",
        "SCHEDULER_KUBERNETES_SERVICE_ACCOUNTS": "report",
        "SCHEDULER_KUBERNETES_OWNER": "jobs-toban",
        "SCHEDULER_KUBERNETES_MARGIN_SECONDS": "60",
        "SCHEDULER_KUBERNETES_SETTLE_SECONDS": "30",
    }


def test_releases_that_run_the_same_jobs_can_have_one_owner(chart: Any) -> None:
    """By it the attempt that is repeated finds the Job of the earlier one."""
    [spec] = [spec for component, spec in pods(chart.render(values(owner="both"))) if component == "executor"]
    assert {"name": "SCHEDULER_KUBERNETES_OWNER", "value": "both"} in spec["containers"][0]["env"]


def test_the_policy_lets_it_reach_the_api(chart: Any, one: Any) -> None:
    egress = one(chart.render(values()), "NetworkPolicy", "toban-executor")["spec"]["egress"]
    [rule] = [rule for rule in egress if rule.get("to") == API]
    assert rule["ports"] == [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]


def test_the_job_of_a_step_is_one_that_kubernetes_knows() -> None:
    """Field by field, in the oldest version that the chart is for and in the newest that the validator has."""
    validator = pytest.importorskip("kubernetes_validate")
    marks = labels(owner="toban", key=AttemptKey(1, 2), attempt=1, step=0, incarnation="i")
    step = {
        "image": "a:1",
        "argv": ["x"],
        "env": {"A": "b"},
        "working_dir": "/d",
        "user": "1:2",
        "service_account": "report",
        "node_selector": {"a": "b"},
        "requests": {"cpus": 0.5},
        "limits": {"memory_mb": 1},
    }
    given = {"name": job_name(marks), "labels": marks, "env": {}, "job_name": "j", "step_id": "s", "grace_seconds": 0.5}
    oldest = re.search(r">=(\d+\.\d+)", yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"])
    assert oldest
    for version in (oldest[1], validator.latest_version()):
        for kubernetes in (step, {"image": "a:1"}):
            validator.validate(manifest({**given, "kubernetes": kubernetes}, own={}, deadline=60), version, strict=True)


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ({"namespace": ""}, "executor.kubernetes.namespace: set a namespace"),
        ({"namespace": "jobs"}, "executor.kubernetes.namespace: set a namespace"),
        ({"images": []}, "executor.kubernetes.images: list the images"),
        ({"to": []}, "executor.kubernetes.to: set the peers"),
        ({"api": "http://a"}, "http://a"),
        ({"marginSeconds": 1}, "10"),
        ({"settleSeconds": 0}, "1"),
        ({"owner": "a b"}, "owner"),
    ],
)
def test_a_wrong_value_says_what_is_missing(chart: Any, steps: Object, says: str) -> None:
    with pytest.raises(Exception, match=says):
        chart.render(values(**steps))
