"""The variables that the chart sets are those that the services know, with values that they take, and no more than they use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from toban_admin_web.config import AdminWebConfig
from toban_coordinator.config import CoordinatorConfig
from toban_domain.oidc import parse_grants
from toban_executor.config import ExecutorConfig
from toban_log_archiver.config import LogArchiverConfig
from toban_runtime.config import ServiceConfig, read
from toban_runtime.config_checks import is_secret, variable
from toban_store.migrate import SEEDED

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "deploy" / "helm" / "toban" / "examples").glob("*.yaml"))
CONFIGS = {
    "coordinator": CoordinatorConfig,
    "executor": ExecutorConfig,
    "log-archiver": LogArchiverConfig,
    "admin-web": AdminWebConfig,
}
# What fields stand for in a pod.
FIELDS = {"status.podIP": "10.1.2.3", "metadata.name": "toban-executor-0", "spec.nodeName": "node-a"}
# Of the files of a Secret, as the chart mounts them.
MODE = 0o440
SECRETS = {
    "postgresql/url": "postgresql://toban:k1DF8s@db.internal:5432/toban?sslmode=verify-full",
    "redis/url": "redis+sentinel://:k1DF8s@a:26379,b:26379/turns",
    "s3/access_key": "AK1DF8s",
    "s3/secret_key": "k1DF8s",
    "jobs/keys": "azFERjhz",
    "oidc/client-secret": "k1DF8s",
    "admin/token": "k1DF8s",
}


def environments(objects: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Component → the environment of its container, as Kubernetes makes it."""
    found = {}
    for item in objects:
        template = item.get("spec", {}).get("template")
        if template:
            (container,) = template["spec"]["containers"]
            made: dict[str, str] = {}
            for entry in container["env"]:
                field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
                value = FIELDS[field] if field else entry["value"]
                for name, known in made.items():
                    value = value.replace(f"$({name})", known)
                assert "$(" not in value, f"{entry['name']} refers to what is not set before it"
                assert entry["name"] not in made, f"{entry['name']} is set twice"
                made[entry["name"]] = value
            found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = made
    return found


@pytest.fixture
def in_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`in_pod(environment)`: this process has it, and the files of Secrets that it names."""

    def enter(environment: dict[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith("SCHEDULER_")]:
            monkeypatch.delenv(name)
        for name, value in environment.items():
            text = value
            if name.endswith("_FILE"):
                kept = value.removeprefix("/etc/scheduler/secrets/")
                path = tmp_path / kept.replace("/", "-")
                path.unlink(missing_ok=True)
                path.write_text(SECRETS[kept] + "\n")
                path.chmod(MODE)
                text = str(path)
            monkeypatch.setenv(name, text)

    return enter


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_service_takes_its_environment(example: Any, in_pod: Any, name: str) -> None:
    made = environments(example(name))
    for component, config in CONFIGS.items():
        if component in made:
            in_pod(made[component])
            taken = read(config)
            assert taken.tls_dir == Path("/etc/scheduler/tls")
            assert (taken.admin_port, taken.log_format) == (9464, "json")
            assert taken.admin_token_file is not None


def test_what_the_values_say_arrives(example: Any, in_pod: Any) -> None:
    made = environments(example("production"))
    in_pod(made["executor"])
    executor = read(ExecutorConfig)
    assert (executor.slots, executor.labels, executor.shutdown_timeout_seconds) == (16, {"pool": "general"}, 3600)
    assert executor.coordinators == ("toban-coordinator.jobs.svc:50051",)
    assert (executor.node_id, executor.machine) == ("toban-executor-0", "node-a/toban-executor-0")
    assert (executor.advertised, executor.grpc_port, executor.tls_shared_identity) == ("10.1.2.3", 50051, False)
    in_pod(made["coordinator"])
    coordinator = read(CoordinatorConfig)
    assert coordinator.redis_url == SECRETS["redis/url"]
    assert coordinator.secrets_key_file is not None
    assert (coordinator.trust_domain, coordinator.node_id) == ("toban.example.com", "node-a")
    assert coordinator.oidc_groups["developers"] == parse_grants("operator group:developers")
    assert (coordinator.oidc_shown, coordinator.oidc_create_accounts) == ("id.example.com", True)
    in_pod(made["log-archiver"])
    archiver = read(LogArchiverConfig)
    assert (archiver.s3_bucket, archiver.s3_addressing_style) == ("toban-logs", "virtual")
    in_pod(made["admin-web"])
    site = read(AdminWebConfig)
    assert (site.http_host, site.http_allow_remote, site.http_names) == ("0.0.0.0", True, ("toban.example.com",))
    assert site.http_threads == 64
    assert site.oidc_client_secret == SECRETS["oidc/client-secret"]


def test_over_ipv6_addresses_are_in_brackets(example: Any) -> None:
    made = environments(example("own-certificates"))
    assert made["coordinator"]["SCHEDULER_GRPC_HOST"] == "::"
    assert made["coordinator"]["SCHEDULER_ADVERTISE_HOST"] == f"[{FIELDS['status.podIP']}]"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_migration_takes_its_environment(example: Any, name: str) -> None:
    made = environments(example(name)).get("migrate", {})
    known = {"SCHEDULER_DATABASE_URL_FILE", *(f"SCHEDULER_{setting.upper()}" for setting in SEEDED)}
    assert {variable for variable in made if variable.startswith("SCHEDULER_")} <= known


def test_shared_identity_is_read_by_every_service(example: Any, in_pod: Any) -> None:
    made = environments(example("shared-certificate"))
    for component, config in CONFIGS.items():
        in_pod(made[component])
        assert read(config).tls_shared_identity is True


# Set by nobody here: their defaults hold in a pod, or the image sets them.
LEFT_OUT = {
    # cert-manager issues certificates of executors there (docs/joining.md).
    "coordinator": {"COORDINATORS", "OIDC_CA_FILE", "SIGNER"},
    # Engines are outside of clusters; the files are those of the pod.
    "executor": {
        "CONTAINER_ENGINE",
        "RENEW_CERTIFICATE",
        "CONTAINER_MOUNTS",
        "HTTP_STEP_CA_FILE",
        "KUBERNETES_TOKEN_FILE",
        "KUBERNETES_CA_FILE",
        # Of slots: CPUs and memory need control groups, and folders need mounts, which a pod cannot make.
        "JOB_CPUS",
        "JOB_MEMORY_MB",
        "JOB_UIDS",
        "HIDDEN_FOLDERS",
        "SHOWN_FOLDERS",
    },
    "log-archiver": {"LOG_ARCHIVERS"},
    # A pod has one worker, so that its metrics have one port: replicas do what workers do on one machine.
    "admin-web": {"HTTP_WORKERS", "REQUEST_SECONDS", "WEB_DIR", "WEBHOOK_CA_FILE", "OIDC_CA_FILE"},
}
# Of all services; each says for itself which of them mean something to it (docs/operations.md).
COMMON = {variable(name) for name in ServiceConfig.model_fields}


def test_variables_of_one_service_alone_can_be_set_by_a_value(example: Any) -> None:
    """A new variable of a service needs a value of the chart, or a reason above to leave it out."""
    set_somewhere: dict[str, set[str]] = {}
    for name in EXAMPLES:
        for component, made in environments(example(name)).items():
            set_somewhere.setdefault(component, set()).update(key.removesuffix("_FILE") for key in made)
    for component, config in CONFIGS.items():
        own = {variable(name) for name, info in config.model_fields.items() if not is_secret(info)} - COMMON
        missing = {name.removeprefix("SCHEDULER_") for name in own - set_somewhere[component]}
        assert missing <= LEFT_OUT[component], f"{component}: {missing - LEFT_OUT[component]} cannot be set"
