"""Objects of operators (cert-manager, KEDA, Prometheus) fit their definitions, field by field: a cluster prunes or refuses what it does not know."""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from toban_testing.k8s_objects import Object

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "deploy" / "helm" / "toban" / "examples").glob("*.yaml"))
LEAST = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}}
# What has a dot in its group and is not of Kubernetes itself.
BUILT_IN = (".k8s.io/",)
MODELS = {
    "cert-manager.io/v1": "cloudcoil.models.cert_manager.v1",
    "keda.sh/v1alpha1": "cloudcoil.models.keda.v1alpha1",
    "monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1",
}
# Of KEDA's trigger `prometheus`; the definition takes any name there. Every value is a string.
TRIGGER = {
    "needs": {"serverAddress", "query", "threshold"},
    "takes": {"activationThreshold", "namespace", "ignoreNullValues", "unsafeSsl", "timeout", "queryParameters"},
}
EVERYTHING = {
    **LEAST,
    "tls": {"certManager": {"externalWorker": True}},
    "executor": {"autoscaling": {"kind": "keda", "query": "sum(toban_runs_live)"}},
    "adminToken": {"existingSecret": "at"},
    "monitoring": {"scrape": "serviceMonitor", "rules": True, "labels": {"release": "prometheus"}},
}


def custom(objects: Iterable[Object]) -> list[Object]:
    return [
        found
        for found in objects
        if "." in found["apiVersion"] and not any(group in found["apiVersion"] for group in BUILT_IN)
    ]


def strict(schema: Any) -> Any:
    """A model's JSON Schema without what a model takes and a cluster does not: unknown fields, and null for a field left out."""
    if isinstance(schema, list):
        return [strict(item) for item in schema if item != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items() if key not in ("default", "description", "title")}
    if "properties" in schema:
        # Here keys are names of fields, whatever they are.
        made["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        made["additionalProperties"] = False
    # A choice of one is told as what it is: the fault in it has its place then.
    return made["anyOf"][0] if len(made.get("anyOf", ())) == 1 else made


@cache
def definition(api_version: str, kind: str) -> Any:
    pytest.importorskip("cloudcoil", reason="make chart-test installs it")
    model = getattr(importlib.import_module(MODELS[api_version]), kind)
    schema = strict(model.model_json_schema(by_alias=True))
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return jsonschema_rs.validator_for(schema)


def faults(found: Object) -> list[str]:
    """What the operator would refuse or overlook in it, each with its place."""
    told = [
        f"{'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in definition(found["apiVersion"], found["kind"]).iter_errors(found)
    ]
    spec = found.get("spec", {})
    for trigger in spec.get("triggers", []) if found["kind"] == "ScaledObject" else []:
        names = set(trigger.get("metadata", {}))
        told += [f"trigger: needs {name}" for name in sorted(TRIGGER["needs"] - names)]
        told += [f"trigger: unknown {name}" for name in sorted(names - TRIGGER["needs"] - TRIGGER["takes"])]
        if trigger["type"] != "prometheus" or trigger.get("metricType") not in ("AverageValue", "Value"):
            told.append("trigger: type and metricType")
    return [*told, *_certificate(spec)] if found["kind"] == "Certificate" else told


def _certificate(spec: Object) -> list[str]:
    """What cert-manager's webhook asks besides."""
    told = []
    if len(spec.get("commonName", "").encode()) > 64:
        told.append("commonName: at most 64 bytes")
    seconds = {name: _seconds(spec[name]) for name in ("duration", "renewBefore") if name in spec}
    told += [f"{name}: no duration" for name, value in seconds.items() if not value]
    if (seconds.get("renewBefore") or 0) >= (seconds.get("duration") or 1):
        told.append("renewBefore: not below duration")
    return told


def _seconds(duration: str) -> int:
    """Of a duration of Go; 0 when it is none."""
    if not re.fullmatch(r"(\d+h)?(\d+m)?(\d+s)?", duration):
        return 0
    return sum(int(count) * {"h": 3600, "m": 60, "s": 1}[unit] for count, unit in re.findall(r"(\d+)([hms])", duration))


@pytest.mark.parametrize("name", EXAMPLES)
def test_objects_of_operators_fit_their_definitions(example: Any, name: str) -> None:
    assert {f"{found['kind']} {found['metadata']['name']}": faults(found) for found in custom(example(name))} == {
        f"{found['kind']} {found['metadata']['name']}": [] for found in custom(example(name))
    }


def test_so_do_those_of_every_other_choice(chart: Any) -> None:
    found = custom(chart.render(EVERYTHING))
    assert [faults(item) for item in found] == [[]] * len(found)
    assert {item["kind"] for item in found} == {
        "Certificate",
        "Issuer",
        "ScaledObject",
        "ServiceMonitor",
        "PrometheusRule",
    }


def test_every_kind_of_an_operator_is_known(example: Any) -> None:
    kinds = {(item["apiVersion"], item["kind"]) for name in EXAMPLES for item in custom(example(name))}
    assert kinds == {
        ("cert-manager.io/v1", "Certificate"),
        ("cert-manager.io/v1", "Issuer"),
        ("keda.sh/v1alpha1", "ScaledObject"),
        ("monitoring.coreos.com/v1", "PodMonitor"),
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("monitoring.coreos.com/v1", "PrometheusRule"),
    }


def test_the_longest_names_are_taken(chart: Any) -> None:
    """Helm lets a release have 53 letters and Kubernetes a namespace 63."""
    release = "r" * 53
    values = {**LEAST, "tls": {"secretName": "one"}}
    for found in custom(chart.render(values, release=release, namespace="n" * 63)):
        assert faults(found) == [], found["metadata"]["name"]


GONE = object()


@pytest.mark.parametrize(
    ("kind", "place", "value", "says"),
    [
        ("Certificate", "spec/dnsName", ["a"], "spec: Additional properties"),
        ("Certificate", "spec/secretName", GONE, '"secretName" is a required property'),
        ("Certificate", "spec/issuerRef/name", GONE, '"name" is a required property'),
        ("Certificate", "spec/privateKey/rotationPolicy", "always", "spec/privateKey/rotationPolicy: "),
        ("Certificate", "spec/privateKey/size", "256", "spec/privateKey/size: "),
        ("Certificate", "spec/usages", ["digital signatures"], "spec/usages/0: "),
        ("Certificate", "spec/duration", "30d", "duration: no duration"),
        ("Certificate", "spec/renewBefore", "90000h", "renewBefore: not below duration"),
        ("Certificate", "spec/commonName", "x" * 65, "commonName: at most 64 bytes"),
        ("Certificate", "spec", GONE, '"spec" is a required property'),
        ("Certificate", "metadata/label", {}, "metadata: Additional properties"),
        ("Issuer", "spec/selfsigned", {}, "spec: Additional properties"),
        ("Issuer", "spec/ca", {"secret": "x"}, '"secretName" is a required property'),
        ("ScaledObject", "spec/minReplicas", 2, "spec: Additional properties"),
        ("ScaledObject", "spec/minReplicaCount", "2", "spec/minReplicaCount: "),
        ("ScaledObject", "spec/maxReplicaCount", None, "spec/maxReplicaCount: "),
        ("ScaledObject", "spec/scaleTargetRef/name", GONE, '"name" is a required property'),
        ("ScaledObject", "spec/triggers", GONE, '"triggers" is a required property'),
        ("ScaledObject", "spec/triggers/0/metadata/threshold", 8, "spec/triggers/0/metadata/threshold: "),
        ("ScaledObject", "spec/triggers/0/metadata/serverAdress", "x", "trigger: unknown serverAdress"),
        ("ScaledObject", "spec/triggers/0/metadata/query", GONE, "trigger: needs query"),
        ("ScaledObject", "spec/triggers/0/metricType", "Average", "trigger: type and metricType"),
        (
            "ScaledObject",
            "spec/advanced/horizontalPodAutoscalerConfig/behavior/scaledown",
            {},
            "spec/advanced/horizontalPodAutoscalerConfig/behavior: Additional properties",
        ),
        ("PodMonitor", "spec/endpoints", [], "spec: Additional properties"),
        ("PodMonitor", "spec/podMetricsEndpoints/0/interval", "30 s", "spec/podMetricsEndpoints/0/interval: "),
        ("PodMonitor", "spec/podMetricsEndpoints/0/relabelings/0/action", "rename", "relabelings/0/action: "),
        ("ServiceMonitor", "spec/endpoints", GONE, '"endpoints" is a required property'),
        ("ServiceMonitor", "spec/endpoints/0/relabelings/0/sourceLabel", ["a"], "Additional properties"),
        ("ServiceMonitor", "spec/selector/matchLabel", {}, "spec/selector: Additional properties"),
        ("PrometheusRule", "spec/groups/0/rules/0/fore", "5m", "spec/groups/0/rules/0: Additional properties"),
        ("PrometheusRule", "spec/groups/0/rules/0/expr", GONE, '"expr" is a required property'),
        ("PrometheusRule", "spec/groups/0/interval", "soon", "spec/groups/0/interval: "),
    ],
)
def test_a_mistake_is_found(example: Any, kind: str, place: str, value: Any, says: str) -> None:
    names = ("minimal", "production", "own-certificates")
    good = next(found for name in names for found in example(name) if found["kind"] == kind)
    bad = copy.deepcopy(good)
    *way, last = place.split("/")
    target: Any = bad
    for step in way:
        target = target[int(step)] if isinstance(target, list) else target[step]
    if value is GONE:
        del target[last]
    else:
        target[last] = value
    assert any(says in told for told in faults(bad)), faults(bad)
