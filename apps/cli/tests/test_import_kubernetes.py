"""`toban import kubernetes`: each key of a CronJob has its counterpart, is named as missing, or is named as left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toban_cli.importers.kubernetes import convert
from toban_cli.importers.result import Entry, Fate, Options
from toban_manifests.yaml_text import parse_yaml

Toban = Callable[..., tuple[int, str, str]]
YAML = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: batch, labels: {app.kubernetes.io/name: report}}
spec:
  schedule: "30 2 * * 1-5"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 600
  successfulJobsHistoryLimit: 3
  jobTemplate:
    spec:
      backoffLimit: 2
      activeDeadlineSeconds: 3600
      template:
        spec:
          restartPolicy: OnFailure
          serviceAccountName: report
          nodeSelector: {kubernetes.io/arch: amd64}
          containers:
            - name: report
              image: registry.example.com/team/report:1.4
              args: ["--to", "$(TARGET)", "$$(TARGET)", "$(OTHER)"]
              workingDir: /data
              env: [{name: TARGET, value: "s3://out"}]
              securityContext: {runAsUser: 1000, runAsGroup: 1000}
              resources:
                requests: {cpu: 250m, memory: 256Mi}
                limits: {memory: 1G}
"""


def entry_of(change: dict[str, Any] | None = None, *, container: dict[str, Any] | None = None) -> Entry:
    """The entry of the CronJob above with keys of `spec`, `pod.KEY`, `job.KEY` or of its container replaced."""
    [body] = parse_yaml("x", YAML.encode())
    assert isinstance(body, dict)
    job = body["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    pod["containers"][0].update(container or {})
    for path, value in (change or {}).items():
        where, _, key = path.rpartition(".")
        {"": body["spec"], "pod": pod, "job": job}[where][key] = value
    [entry] = convert([("1", "x.yaml", body)], Options()).entries
    return entry


def test_a_cron_job_becomes_a_job_and_a_schedule() -> None:
    entry = entry_of()
    assert entry.fate is Fate.CONVERTED
    job, schedule = entry.documents
    assert job["metadata"]["labels"] == {"app.kubernetes.io/name": "report", "origin": "kubernetes"}
    assert job["spec"] == {
        "steps": [
            {
                "id": "pod",
                "type": "kubernetes",
                "kubernetes": {
                    "image": "registry.example.com/team/report:1.4",
                    "argv": ["--to", "s3://out", "$(TARGET)", "$(OTHER)"],
                    "working_dir": "/data",
                    "user": "1000:1000",
                    "requests": {"cpus": 0.25, "memory_mb": 256},
                    "limits": {"memory_mb": 954},
                    "service_account": "report",
                    "node_selector": {"kubernetes.io/arch": "amd64"},
                    "namespace": "batch",
                    "env": {"TARGET": "s3://out"},
                },
            }
        ],
        "timeout_seconds": 3600,
        "cancel": {"grace_seconds": 30},
        "retry": {"max_retries": 2, "backoff_seconds": {"initial": 10, "multiplier": 2, "max": 360}},
        "concurrency": {"policy": "forbid"},
        "skip_late_after_seconds": 600,
    }
    assert schedule["spec"] == {
        "job": "report",
        "cron": "30 2 * * 1-5",
        "timezone": "Europe/Berlin",
        "dst": {"gap": "skip"},
        "catch_up": "one",
    }


def test_keys_of_the_schedule(subtests: pytest.Subtests) -> None:
    rows: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "suspended": ({"suspend": True}, {"enabled": False}),
        "a zone before the times": ({"schedule": "CRON_TZ=Asia/Tokyo 0 1 * * *"}, {"timezone": "Asia/Tokyo"}),
        "a step from a value": ({"schedule": "5/15 ? * * 1/2"}, {"cron": "5-59/15 * * * 1-6/2"}),
        "an alias": ({"schedule": "@weekly"}, {"cron": "@weekly"}),
        "either day": ({"schedule": "0 3 1-31/2 * 1"}, {"cron": "0 3 1-31/2 * 1"}),
        "any day with a weekday": ({"schedule": "0 3 */1 * 1"}, {"cron": "0 3 */1 * 1"}),
        "an interval": ({"schedule": "@every 90m"}, {"interval_seconds": 5400}),
    }
    for name, (change, expected) in rows.items():
        with subtests.test(name):
            spec = entry_of(change).documents[1]["spec"]
            assert {key: spec[key] for key in expected} == expected


def test_a_pod_without_a_part_that_it_needs_is_not_scheduled(subtests: pytest.Subtests) -> None:
    secret = {"secretKeyRef": {"name": "db", "key": "password"}}
    rows: dict[str, tuple[Entry, str]] = {
        "volumes": (entry_of({"pod.volumes": [{"name": "data"}]}), "volumes of the pod: data"),
        "init": (entry_of({"pod.initContainers": [{"name": "wait"}]}), "initContainers of the pod: wait"),
        "mounts": (entry_of(container={"volumeMounts": [{"name": "data"}]}), "volumeMounts of the container: data"),
        "envFrom": (
            entry_of(container={"envFrom": [{"secretRef": {"name": "db"}}]}),
            "envFrom of the container: secretRef",
        ),
        "secret": (entry_of(container={"env": [{"name": "P", "valueFrom": secret}]}), "env P comes from secretKeyRef"),
        "gpu": (entry_of(container={"resources": {"limits": {"nvidia.com/gpu": 1}}}), "limits.nvidia.com/gpu: 1"),
    }
    for name, (entry, reason) in rows.items():
        with subtests.test(name):
            assert entry.fate is Fate.PARTIAL
            assert any(note.startswith(f"MISSING: {reason}") for note in entry.notes)
            assert entry.documents[1]["spec"]["enabled"] is False


def test_what_is_left_out_is_named(subtests: pytest.Subtests) -> None:
    entry = entry_of(
        {"pod.tolerations": [{"key": "a"}], "job.podFailurePolicy": {"rules": []}}, container={"command": ["sh"]}
    )
    text = "\n".join(entry.notes)
    for part in (
        "of pod: tolerations",
        "of jobTemplate.spec: podFailurePolicy",
        "command: replaces the entry point",
        "1G is 954 MiB",
    ):
        with subtests.test(part):
            assert part in text
    assert entry.fate is Fate.CONVERTED


def test_what_cannot_be_a_job_says_why(subtests: pytest.Subtests) -> None:
    two = [{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]
    rows: dict[str, tuple[Entry, str]] = {
        "two": (entry_of({"pod.containers": two}), "has 2 containers (a, b)"),
        "none": (entry_of({"pod.containers": []}), "no containers"),
        "parallel": (entry_of({"job.parallelism": 3}), "parallelism: 3"),
        "zone": (entry_of({"timeZone": "Mars/Base"}), "no zone 'Mars/Base'"),
        "seconds": (entry_of({"schedule": "0 0 3 * * *"}), "has 6 fields"),
        "odd days or Mondays": (entry_of({"schedule": "0 3 */2 * 1"}), "either may match"),
        "a day or every second weekday": (entry_of({"schedule": "0 3 13 * */2"}), "either may match"),
        "both, by a later *": (entry_of({"schedule": "0 3 13,* * 1"}), "both must match"),
        "policy": (entry_of({"concurrencyPolicy": "Maybe"}), "concurrencyPolicy: Maybe"),
        "image": (entry_of(container={"image": ""}), "image"),
        "command": (entry_of(container={"command": "date"}), "must be a list"),
    }
    for name, (entry, reason) in rows.items():
        with subtests.test(name):
            assert (entry.fate, entry.documents) == (Fate.LOST, ())
            assert reason in entry.outcome


def test_lists_and_other_documents(tmp_path: Path, toban: Toban) -> None:
    listed = "\n".join(f"    {line}" for line in YAML.splitlines()).replace("    apiVersion", "  - apiVersion", 1)
    file = tmp_path / "all.yaml"
    file.write_text(f"kind: List\nitems:\n{listed}\n---\nkind: Deployment\nmetadata: {{name: web}}\n---\n{YAML}")
    code, out, err = toban("import", "kubernetes", str(file))
    assert code == 0
    assert "document 2: Deployment web\n  NOT carried over because: only a CronJob becomes a job" in err
    assert err.endswith("2 CronJobs: 2 jobs, 2 schedules; NOT carried over: document 2\n")
    assert out.count("kind: Schedule") == 2
    other = tmp_path / "other.yaml"
    other.write_text(YAML)
    assert f"document 1 of {other}: CronJob report\n" in toban("import", "kubernetes", str(file), str(other))[2]
    file.write_text("kind: [")
    code, out, err = toban("import", "kubernetes", str(file))
    assert (code, out, err.count("\n")) == (65, "", 1)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in places(item, (*path, key)))]


def test_values_of_other_types_end_in_the_report() -> None:
    for path in places(parse_yaml("x", YAML.encode())[0]):
        for odd in (None, "x", 1, [1], {"a": {}}, True):
            [body] = parse_yaml("x", YAML.encode())
            at: Any = {"": body}
            for key in ("", *path)[:-1]:
                at = at[key]
            at[("", *path)[-1]] = odd
            [entry] = convert([("1", "x", body if path else odd)], Options()).entries
            assert entry.outcome
