"""The Helm chart renders to what Kubernetes takes, and refuses values that mean nothing. `make chart-test`; no cluster, no network."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "toban"
EXAMPLES = sorted(path.stem for path in (CHART / "examples").glob("*.yaml"))
# Of operators that a cluster may have: cert-manager, KEDA, Prometheus.
CUSTOM = ("cert-manager.io/", "keda.sh/", "monitoring.coreos.com/")


@pytest.mark.parametrize("name", EXAMPLES)
def test_lint_finds_nothing(chart: Any, name: str) -> None:
    values = yaml.safe_load((CHART / "examples" / f"{name}.yaml").read_text())
    report = chart.helm.lint(CHART, values, strict=True)
    assert [message for message in report["messages"] if message["severity"] > 1] + report["errors"] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_objects_fit_the_oldest_and_the_newest_kubernetes(example: Any, name: str) -> None:
    validator = pytest.importorskip("kubernetes_validate")
    oldest = re.search(r">=(\d+\.\d+)", yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"])
    assert oldest
    for found in example(name):
        if not found["apiVersion"].startswith(CUSTOM):
            for version in (oldest[1], validator.latest_version()):
                validator.validate(found, version, strict=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_objects_have_their_own_names_and_the_labels_of_the_release(example: Any, name: str) -> None:
    objects = example(name)
    keys = [(found["apiVersion"], found["kind"], found["metadata"]["name"]) for found in objects]
    assert len(set(keys)) == len(keys)
    for found in objects:
        # The rights of kubernetes steps are those for the namespace of their Jobs.
        assert found["metadata"]["namespace"] == ("batch" if found["kind"] in ("Role", "RoleBinding") else "jobs")
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "toban"
        assert len(found["metadata"]["name"]) <= 63


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"coordinater": {}}, "'coordinater' not allowed"),
        ({"executor": {"replica": 3}}, "'replica' not allowed"),
        ({"executor": {"group": "A b"}}, "/executor/group"),
        ({"executor": {"group": "default"}}, "/executor/group"),
        ({"executor": {"autoscaling": {"keda": True}}}, "'keda' not allowed"),
        ({"executor": {"autoscaling": {"kind": "both"}}}, "'none', 'keda', 'hpa'"),
        ({"tls": {"secretNames": {"cordinator": "x"}}}, "'cordinator' not allowed"),
        ({"tls": {"certManager": {"duration": "30 days"}}}, "/tls/certManager/duration"),
        ({"executor": {"drainSeconds": "1h"}}, "/executor/drainSeconds"),
        ({"coordinator": {"resources": {"limits": {"memory": None}}}}, "/coordinator/resources/limits"),
        ({"postgresql": {"password": "x"}}, "'password' not allowed"),
        ({"external": {"coordinators": ["somewhere"]}}, "/external/coordinators/0"),
        ({"monitoring": {"scrape": "yes"}}, "/monitoring/scrape"),
        ({"redis": {"ports": []}}, "/redis/ports"),
        ({"adminWeb": {"autoscaling": {"kind": "hpa"}}}, "'kind' not allowed"),
        ({"adminWeb": {"threads": 2}}, "/adminWeb/threads"),
        ({"logArchiver": {"autoscaling": {"minReplicas": 0}}}, "/logArchiver/autoscaling/minReplicas"),
        ({"tracing": {"endpoint": "collector:4318"}}, "/tracing/endpoint"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(chart: Any, values: dict[str, Any], says: str) -> None:
    with pytest.raises(chart.helm.HelmError) as caught:
        chart.render(values)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "postgresql.existingSecret: name the Secret"),
        ({"postgresql": {"existingSecret": "pg"}}, "redis.existingSecret: name the Secret"),
        (
            {
                "postgresql": {"existingSecret": "pg"},
                "redis": {"existingSecret": "rd"},
                "adminWeb": {"exposed": True},
            },
            "adminWeb.networkPolicy.from: set the peers of the proxy",
        ),
        (
            {
                "postgresql": {"existingSecret": "pg"},
                "redis": {"existingSecret": "rd"},
                "monitoring": {"scrape": "podMonitor"},
            },
            "adminToken.existingSecret: monitoring.scrape needs it",
        ),
        (
            {
                "postgresql": {"existingSecret": "pg"},
                "redis": {"existingSecret": "rd"},
                "tracing": {"endpoint": "http://collector:4318"},
            },
            "tracing.to: set the peers of tracing.endpoint",
        ),
        (
            {
                "postgresql": {"existingSecret": "pg"},
                "redis": {"existingSecret": "rd"},
                "adminWeb": {"ingress": {"enabled": True, "host": "x"}},
            },
            "adminWeb.ingress.enabled needs adminWeb.exposed: true",
        ),
        (
            {"coordinator": {"enabled": False}, "migrate": {"enabled": False}, "postgresql": {"existingSecret": "pg"}},
            "external.coordinators: set host:port",
        ),
        (
            {
                "postgresql": {"existingSecret": "pg"},
                "redis": {"existingSecret": "rd"},
                "logArchiver": {"enabled": False},
            },
            "external.logArchivers: set host:port",
        ),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(chart: Any, values: dict[str, Any], says: str) -> None:
    with pytest.raises(chart.helm.HelmError) as caught:
        chart.render(values)
    assert says in str(caught.value)


def closed(schema: Any, path: str = "") -> list[str]:
    """Objects with named properties that let others pass."""
    found = []
    if isinstance(schema, dict):
        if schema.get("properties") and schema.get("additionalProperties") is not False:
            found.append(path)
        for key, value in schema.items():
            found += closed(value, f"{path}/{key}")
    return found


def test_the_schema_is_closed_everywhere_and_knows_every_default() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert closed(schema) == []
    assert set(schema["properties"]) - {"global"} == set(yaml.safe_load((CHART / "values.yaml").read_text()))


def test_there_are_either_replicas_or_one_scaler(example: Any) -> None:
    kinds = {"HorizontalPodAutoscaler", "ScaledObject"}
    for name in EXAMPLES:
        objects = example(name)
        targets = [found["spec"]["scaleTargetRef"] for found in objects if found["kind"] in kinds]
        scaled = {(target["kind"], target["name"]) for target in targets}
        assert len(scaled) == len(targets)
        workloads = {
            (found["kind"], found["metadata"]["name"]): found["spec"]
            for found in objects
            if found["kind"] in ("StatefulSet", "Deployment")
        }
        assert scaled <= set(workloads)
        assert {key for key, spec in workloads.items() if "replicas" not in spec} == scaled


def test_the_site_and_log_archivers_scale_by_cpu_where_it_is_switched_on(example: Any, one: Any, least: Any) -> None:
    assert not [found for found in least if found["kind"] == "HorizontalPodAutoscaler"]
    for name, bounds, percent in (("admin-web", (2, 4), 60), ("log-archiver", (3, 8), 70)):
        spec = one(example("production"), "HorizontalPodAutoscaler", f"toban-{name}")["spec"]
        assert (spec["minReplicas"], spec["maxReplicas"]) == bounds
        assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"toban-{name}"}
        [metric] = spec["metrics"]
        assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": percent}
        deployment = one(example("production"), "Deployment", f"toban-{name}")
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert "cpu" in container["resources"]["requests"], "utilization is a part of the request"


def test_without_a_number_executors_stay(example: Any, one: Any) -> None:
    """No leader, no `toban_runs_live`: KEDA takes an empty answer for 0 unless told otherwise, and a fallback sets a number of its own."""
    spec = one(example("production"), "ScaledObject", "toban-executor")["spec"]
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert "fallback" not in spec


def test_scaling_asks_for_a_metric_that_exists(example: Any, chart: Any) -> None:
    from toban_testing.monitoring import catalogue

    known = {metric.name for metric in catalogue.declared(ROOT)}
    texts = [json.dumps(found) for name in EXAMPLES for found in example(name) if "autoscaler" in found["kind"].lower()]
    texts += [json.dumps(found) for found in example("production") if found["kind"] == "ScaledObject"]
    texts.append(chart.notes({**LEAST, "tls": {"secretName": "scheduler-grpc-tls"}}))
    named = {name for text in texts for name in re.findall(r"\btoban_[a-z_]+\b", text)}
    assert len(texts) >= 3
    assert named
    assert named <= known


LEAST = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}}


def texts(value: Any, *path: str) -> list[tuple[str, ...]]:
    """Where an object has a number or a truth value that was given as a text."""
    if isinstance(value, dict):
        return [found for key, item in value.items() for found in texts(item, *path, str(key))]
    if isinstance(value, list):
        return [found for item in value for found in texts(item, *path)]
    return [] if isinstance(value, str) or not re.fullmatch(r"9{3,}", str(value)) else [path]


def test_texts_that_look_like_something_else_stay_texts(chart: Any) -> None:
    """A Secret called 9999, a region called 999, a wildcard of a host, a release and a namespace of digits alone."""
    validator = pytest.importorskip("kubernetes_validate")
    given = {"name": "9999", "key": "9999"}
    values = {
        "image": {"tag": "9999", "pullSecrets": ["9999"]},
        "serviceAccount": {"name": "9999"},
        "postgresql": {"existingSecret": "9999", "key": "9999", "caSecret": given},
        "redis": {"existingSecret": "9999", "key": "9999", "caSecret": given},
        "adminToken": {"existingSecret": "9999", "key": "9999"},
        "s3": {
            "bucket": "9999",
            "region": "9999",
            "existingSecret": "9999",
            "accessKeyKey": "9999",
            "secretKeyKey": "99999",
            "caSecret": given,
        },
        "tls": {
            "trustDomain": "9999",
            "secretName": "9999",
            "caBundle": given,
            "certManager": {"issuerRef": {"name": "9999", "kind": "9999", "group": "9999"}},
        },
        "coordinator": {"priorityClassName": "9999", "runtimeClassName": "9999", "databaseSecret": given},
        "logArchiver": {"serviceAccountName": "99999"},
        "migrate": {"rolePasswords": "9999"},
        "adminCli": {"enabled": True},
        "adminWeb": {
            "exposed": True,
            "networkPolicy": {"from": [{"podSelector": {}}]},
            "ingress": {"enabled": True, "className": "9999", "host": "*.example.com", "tlsSecret": "9999"},
        },
        "monitoring": {"scrape": "podMonitor", "labels": {"team": "9999"}},
    }
    objects = chart.render(values, release="9999", namespace="9999")
    for found in objects:
        assert texts(found) == [], f"{found['kind']} {found['metadata']['name']}"
        if not found["apiVersion"].startswith(CUSTOM):
            validator.validate(found, validator.latest_version(), strict=True)


def test_large_numbers_are_written_out(chart: Any) -> None:
    """Numbers of values are floats to Helm, which writes 1000680000, a usual user on OpenShift, as 1.00068e+09."""
    numbers = {
        "security": {"uid": 1000680000, "gid": 1000690000},
        "migrate": {"ttlSeconds": 2592000, "skipLateRunsAfterSeconds": 2592000},
        "executor": {"logBudgetMb": 4000000},
    }
    for found in chart.render({**LEAST, **numbers}):
        spec = found.get("spec", {}).get("template", {}).get("spec")
        if spec is None:
            continue
        security = spec["securityContext"]
        assert [security[name] for name in ("runAsUser", "runAsGroup", "fsGroup")] == [
            1000680000,
            1000690000,
            1000690000,
        ]
        assert isinstance(security["runAsUser"], int)
        if found["kind"] == "Job":
            assert found["spec"]["ttlSecondsAfterFinished"] == 2592000
            env = {item["name"]: item["value"] for item in spec["containers"][0]["env"]}
            assert env["SCHEDULER_SKIP_LATE_RUNS_AFTER_SECONDS"] == "2592000"
        if found["kind"] == "StatefulSet":
            env = {item["name"]: item.get("value") for item in spec["containers"][0]["env"]}
            assert env["SCHEDULER_LOG_BUDGET_MB"] == "4000000"


def test_without_an_account_of_its_own_a_pod_has_one_that_exists(chart: Any) -> None:
    from toban_testing.k8s_objects import pods

    for account, name in (({"create": False}, "default"), ({"create": False, "name": "mine"}, "mine"), ({}, "toban")):
        objects = chart.render({**LEAST, "serviceAccount": account})
        assert {spec["serviceAccountName"] for _, spec in pods(objects)} == {name}
        made = [found["metadata"]["name"] for found in objects if found["kind"] == "ServiceAccount"]
        assert made == ([name] if account == {} else [])


def test_a_migration_job_has_a_new_name_when_it_changes(chart: Any) -> None:
    def job(values: dict[str, Any]) -> str:
        (found,) = [item for item in chart.render({**LEAST, **values}) if item["kind"] == "Job"]
        return str(found["metadata"]["name"])

    names = [job({}), job({"executor": {"replicas": 9}}), job({"image": {"tag": "0.2.0"}})]
    assert names[0] == names[1] != names[2]


def test_every_part_can_be_left_out(chart: Any) -> None:
    services = ("coordinator", "logArchiver", "executor", "adminWeb", "migrate")
    left = chart.render({name: {"enabled": False} for name in services})
    assert {found["kind"] for found in left} == {"Certificate", "Issuer", "NetworkPolicy", "ServiceAccount"}


def test_rules_and_dashboards_are_those_of_deploy(example: Any, one: Any) -> None:
    subprocess.run([ROOT / "scripts" / "gen-chart-files", "--check"], check=True)
    objects = example("production")
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "toban.rules.yml").read_text())
    assert one(objects, "PrometheusRule", "toban-toban")["spec"] == rules
    shown = one(objects, "ConfigMap", "toban-dashboards")["data"]
    kept = {path.name: path.read_text() for path in (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")}
    assert {name: json.loads(text) for name, text in shown.items()} == {
        name: json.loads(text) for name, text in kept.items()
    }


def test_scraping_gives_the_names_of_jobs_that_the_alerts_use(example: Any, one: Any) -> None:
    for name, kind, endpoints in (
        ("production", "PodMonitor", "podMetricsEndpoints"),
        ("own-certificates", "ServiceMonitor", "endpoints"),
    ):
        (endpoint,) = one(example(name), kind, "toban")["spec"][endpoints]
        assert (endpoint["port"], endpoint["path"]) == ("admin", "/metrics")
        assert endpoint["authorization"] == {"credentials": {"name": "toban-admin-token", "key": "token"}}
        (label,) = endpoint["relabelings"]
        assert (label["targetLabel"], label["replacement"]) == ("job", "toban-$1")
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    components = {"coordinator", "executor", "log-archiver", "admin-web"}
    assert {job["job_name"] for job in jobs} == {f"toban-{name}" for name in components}


def test_the_notes_lead_the_command_to_both_services(chart: Any) -> None:
    notes = chart.notes(LEAST)
    for service, name, port in (("coordinator", "COORDINATORS", "50051"), ("log-archiver", "LOG_ARCHIVERS", "50052")):
        (forwarded,) = re.findall(rf"port-forward service/toban-{service} (\d+)", notes)
        assert forwarded == port
        assert f"TOBAN_{name}=127.0.0.1:{port}" in notes
    elsewhere = {"coordinators": ["c.example.com:50051"]}
    left = chart.notes(
        {**LEAST, "external": elsewhere, "coordinator": {"enabled": False}, "migrate": {"enabled": False}}
    )
    assert "port-forward service/" not in left
    assert "Init" not in left


def test_the_notes_warn(chart: Any) -> None:
    assert "WARNING" not in chart.notes(LEAST)
    shared = chart.notes({**LEAST, "tls": {"secretName": "one"}, "networkPolicy": {"enabled": False}})
    assert shared.count("WARNING") == 2
    assert "share a PostgreSQL role" in shared
    assert "adminToken.existingSecret is not set" in shared
    assert "adminToken" not in chart.notes({**LEAST, "adminToken": {"existingSecret": "at"}})
    own = {name: {"databaseSecret": {"name": name.lower()}} for name in ("coordinator", "logArchiver")}
    assert "share a PostgreSQL role" not in chart.notes({**LEAST, **own})
