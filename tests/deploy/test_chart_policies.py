"""What a pod of the chart may do, and whose certificate it has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from toban_domain.deny_list import parse_denied
from toban_executor.decide.isolation import CAPABILITIES
from toban_store import roles
from toban_testing.k8s_objects import Object, containers, pods
from toban_transport.authz import SHARED_BY

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "deploy" / "helm" / "toban" / "examples").glob("*.yaml"))
SERVICES = ("coordinator", "executor", "log-archiver", "admin-web")
ADMIN = 9464
LEAST = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}}


# ---------------------------------------------------------------------------------------- pods


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_pod_has_rights_that_it_does_not_need(example: Any, name: str) -> None:
    for component, spec in pods(example(name)):
        assert spec["automountServiceAccountToken"] is False
        # Otherwise a Service called `scheduler` would set SCHEDULER_PORT in every pod, an unknown variable that stops the start.
        assert spec["enableServiceLinks"] is False
        security = spec["securityContext"]
        user = (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"], security.get("fsGroup"))
        isolated = component == "executor" and name == "isolated-jobs"
        # With fsGroup the kubelet would give what the executor keeps to a group.
        assert user == ((False, 0, 0, None) if isolated else (True, 10001, 10001, 10001))
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"}
        assert all("hostPath" not in volume for volume in spec["volumes"])
        for container in containers(spec):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"], **({"add": sorted(CAPABILITIES)} if isolated else {})},
            }


@pytest.mark.parametrize(("value", "is_root"), [(None, False), ("auto", False), ("shared", False), ("isolated", True)])
def test_only_isolated_executors_are_root(chart: Any, one: Any, value: str | None, is_root: bool) -> None:
    """`None`: the values of a release before, with `--reuse-values`."""
    values = {**LEAST, "executor": {"isolation": value} if value else {}}
    spec = one(chart.render(values), "StatefulSet", "toban-executor")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert (spec["securityContext"]["runAsUser"] == 0) is is_root
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["SCHEDULER_ISOLATION"] == (value or "auto")
    assert ('"restricted"' in chart.notes(values)) is is_root


def test_an_unknown_class_is_refused(chart: Any) -> None:
    with pytest.raises(Exception, match="isolation"):
        chart.render({**LEAST, "executor": {"isolation": "namespaces"}})


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_container_is_bounded_in_memory_and_asks_for_cpu(example: Any, name: str) -> None:
    for _, spec in pods(example(name)):
        for container in containers(spec):
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            # A leader that is held back for its CPU misses its beat and loses its term.
            assert "cpu" not in container["resources"]["limits"]
        for volume in spec["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_services_are_probed_on_the_admin_port_and_liveness_asks_nothing_of_others(example: Any, name: str) -> None:
    found = dict(pods(example(name)))
    for service in set(SERVICES) & found.keys():
        (container,) = found[service]["containers"]
        assert {port["name"]: port["containerPort"] for port in container["ports"]}["admin"] == ADMIN
        paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {
            "startup": {"path": "/livez", "port": "admin"},
            "liveness": {"path": "/livez", "port": "admin"},
            "readiness": {"path": "/readyz", "port": "admin"},
        }


@pytest.mark.parametrize("name", EXAMPLES)
def test_services_have_the_token_of_the_admin_port_and_nothing_else_has_it(example: Any, name: str) -> None:
    for component, spec in pods(example(name)):
        held = [volume for volume in spec["volumes"] if volume["name"] == "admin-token"]
        mounted = [mount for one in containers(spec) for mount in one["volumeMounts"] if mount["name"] == "admin-token"]
        if component not in SERVICES:
            assert (held, mounted) == ([], [])
            continue
        items = [{"key": "token", "path": "token"}]
        assert [one["secret"] for one in held] == [
            {"secretName": "toban-admin-token", "defaultMode": 0o440, "items": items}
        ]
        (container,) = spec["containers"]
        env = {item["name"]: item.get("value") for item in container["env"]}
        assert env["SCHEDULER_ADMIN_TOKEN_FILE"] == f"{mounted[0]['mountPath']}/token" and mounted[0]["readOnly"]


def test_without_the_token_no_hook_waits_for_a_drain_that_it_cannot_see(least: Any, one: Any) -> None:
    (container,) = one(least, "StatefulSet", "toban-executor")["spec"]["template"]["spec"]["containers"]
    assert "lifecycle" not in container
    assert "SCHEDULER_ADMIN_TOKEN_FILE" not in {item["name"] for item in container["env"]}


def test_an_executors_grace_covers_its_jobs(chart: Any, one: Any) -> None:
    from toban_executor.app.shutdown import FLUSH_SECONDS, KILL_SECONDS

    values = {
        "postgresql": {"existingSecret": "pg"},
        "redis": {"existingSecret": "rd"},
        "adminToken": {"existingSecret": "at"},
        "executor": {"drainSeconds": 7200, "maxGraceSeconds": 300},
    }
    spec = one(chart.render(values), "StatefulSet", "toban-executor")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS"] == "7200"
    assert env["SCHEDULER_SHUTDOWN_GRACE_SECONDS"] == "300"
    # Outcomes, lines, and what is told to coordinators, one after the other; then the guards and the servers end.
    assert spec["terminationGracePeriodSeconds"] >= 7200 + 300 + KILL_SECONDS + 3 * FLUSH_SECONDS + 10
    drain = container["lifecycle"]["preStop"]["exec"]["command"]
    assert drain == ["/opt/toban/bin/python", "-m", "toban_executor", "drain"]


def test_values_of_the_release_before_are_enough(chart: Any, least: Any) -> None:
    """`helm upgrade --reuse-values` brings no value that is new; an empty list of ports would open all of them."""
    before = {
        "networkPolicy": {"dnsPorts": None},
        "executor": {"maxGraceSeconds": None},
        "s3": {"port": None},
        **{name: {"databaseSecret": {"port": None}} for name in ("coordinator", "logArchiver", "migrate")},
    }
    assert chart.render({**LEAST, **before}) == least


def test_an_executor_keeps_its_state_with_its_name_and_its_node_is_its_machine(least: Any, one: Any) -> None:
    found = one(least, "StatefulSet", "toban-executor")["spec"]
    (claim,) = found["volumeClaimTemplates"]
    (container,) = found["template"]["spec"]["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    env = {item["name"]: item.get("value") for item in container["env"]}
    (mounted,) = [path for path, volume in mounts.items() if volume == claim["metadata"]["name"]]
    assert env["SCHEDULER_STATE_DIR"].startswith(f"{mounted}/")
    assert found["persistentVolumeClaimRetentionPolicy"] == {"whenScaled": "Retain", "whenDeleted": "Retain"}
    # docs/fencing.md 3.8: the boot id of another node says nothing about the node that the pod left.
    assert env["SCHEDULER_MACHINE"] == "$(NODE_NAME)/$(SCHEDULER_NODE_ID)"
    names = [item["name"] for item in container["env"]]
    assert names.index("NODE_NAME") < names.index("SCHEDULER_MACHINE") > names.index("SCHEDULER_NODE_ID")


@pytest.mark.parametrize("name", EXAMPLES)
def test_only_owners_of_a_store_hold_its_credentials(example: Any, name: str) -> None:
    holders: dict[str, set[str]] = {}
    for component, spec in pods(example(name)):
        for container in containers(spec):
            for item in container["env"]:
                if item["name"].endswith("_FILE"):
                    holders.setdefault(item["name"], set()).add(component)
                assert not re.search(r"_(KEY|URL)$", item["name"]) or "S3_ENDPOINT" in item["name"], (
                    "secrets go as files"
                )
    assert holders.get("SCHEDULER_DATABASE_URL_FILE", set()) <= {"coordinator", "log-archiver", "migrate"}
    assert holders.get("SCHEDULER_REDIS_URL_FILE", set()) <= {"coordinator"}
    assert holders.get("SCHEDULER_SECRETS_KEY_FILE", set()) <= {"coordinator"}
    assert holders.get("SCHEDULER_S3_SECRET_KEY_FILE", set()) <= {"log-archiver"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_disruptions_are_bounded_and_replicas_spread(example: Any, name: str) -> None:
    objects = example(name)
    budgets = {
        found["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: found["spec"]["maxUnavailable"]
        for found in objects
        if found["kind"] == "PodDisruptionBudget"
    }
    running = {component: spec for component, spec in pods(objects) if component in SERVICES}
    assert budgets == dict.fromkeys(running, 1)
    for spec in running.values():
        keys = [constraint["topologyKey"] for constraint in spec["topologySpreadConstraints"]]
        assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]


def test_services_with_a_database_wait_for_the_schema(least: Any) -> None:
    waiting = {
        component: [container["args"][-2:] for container in spec.get("initContainers", [])]
        for component, spec in pods(least)
    }
    wait = [["toban_store.migrate", "wait"]]
    assert waiting == {"coordinator": wait, "log-archiver": wait, "executor": [], "admin-web": [], "migrate": []}


def test_each_component_with_a_database_may_have_a_role_of_its_own(example: Any, one: Any) -> None:
    secrets = {
        component: {volume["secret"]["secretName"] for volume in spec["volumes"] if volume["name"] == "postgresql"}
        for component, spec in pods(example("production"))
    }
    assert secrets == {
        "coordinator": {"toban-postgresql-coordinator"},
        "log-archiver": {"toban-postgresql-log-archiver"},
        "migrate": {"toban-postgresql-owner"},
        "executor": set(),
        "admin-web": set(),
    }


def test_the_job_lets_roles_log_in_when_it_gets_their_passwords(chart: Any) -> None:
    def migrate(**values: Any) -> Object:
        [spec] = [
            spec for component, spec in pods(chart.render({**LEAST, "migrate": values})) if component == "migrate"
        ]
        return spec

    assert migrate()["containers"][0]["args"][-1] == "up"
    spec = migrate(rolePasswords="toban-roles")
    folder = spec["containers"][0]["args"][-1]
    assert spec["containers"][0]["args"][-3:-1] == ["up", "--passwords"]
    [mount] = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["mountPath"] == folder]
    [volume] = [volume for volume in spec["volumes"] if volume["name"] == mount["name"]]
    assert volume["secret"]["secretName"] == "toban-roles"
    names = {f"{role}_password" for role in (roles.COORDINATOR, roles.LOG_ARCHIVER)}
    assert {item["path"] for item in volume["secret"]["items"]} == names


def test_without_keys_the_log_archiver_alone_has_the_account_with_the_role(chart: Any, one: Any) -> None:
    values = {**LEAST, "s3": {"bucket": "b"}, "logArchiver": {"serviceAccountName": "archive"}}
    accounts = {component: spec["serviceAccountName"] for component, spec in pods(chart.render(values))}
    assert accounts == dict.fromkeys([*SERVICES, "migrate"], "toban") | {"log-archiver": "archive"}
    spec = one(chart.render(values), "Deployment", "toban-log-archiver")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    names = {item["name"] for item in container["env"]}
    assert "SCHEDULER_S3_BUCKET" in names
    assert not names & {"SCHEDULER_S3_ACCESS_KEY_FILE", "SCHEDULER_S3_SECRET_KEY_FILE"}
    assert "s3" not in {item["name"] for item in [*spec["volumes"], *container["volumeMounts"]]}


# ---------------------------------------------------------------------------------------- certificates


def certificates(objects: list[Object]) -> dict[str, tuple[list[str], list[str]]]:
    """Secret → (URIs, DNS names), without the authority."""
    return {
        found["spec"]["secretName"]: (found["spec"]["uris"], found["spec"]["dnsNames"])
        for found in objects
        if found["kind"] == "Certificate" and not found["spec"].get("isCA")
    }


def mounted(objects: list[Object]) -> dict[str, str]:
    """Component → the Secret with its certificate."""
    return {
        component: volume["projected"]["sources"][0]["secret"]["name"]
        for component, spec in pods(objects)
        for volume in spec["volumes"]
        if volume["name"] == "tls"
    }


@pytest.mark.seed(123)
def test_each_service_has_a_secret_of_its_own(least: Any) -> None:
    assert certificates(least) == {
        f"scheduler-grpc-tls-{name}": ([f"spiffe://toban.internal/{name}"], [f"{name}.toban.internal"])
        for name in (*SERVICES, "admin-cli")
    }
    assert mounted(least) == {name: f"scheduler-grpc-tls-{name}" for name in SERVICES}
    for found in least:
        if found["kind"] == "Certificate":
            # The services take EC keys only.
            assert found["spec"]["privateKey"]["algorithm"] == "ECDSA"


@pytest.mark.seed(122)
def test_one_secret_for_all_is_a_shared_identity_and_not_that_of_people(example: Any) -> None:
    objects = example("shared-certificate")
    names = [f"{name}.toban.internal" for name in SERVICES]
    assert certificates(objects) == {
        "scheduler-grpc-tls": (["spiffe://toban.internal/shared/toban"], names),
        "scheduler-grpc-tls-admin-cli": (["spiffe://toban.internal/admin-cli"], ["admin-cli.toban.internal"]),
    }
    own = {"admin-cli": "scheduler-grpc-tls-admin-cli"}
    assert mounted(objects) == dict.fromkeys(SERVICES, "scheduler-grpc-tls") | own
    assert set(SERVICES) == SHARED_BY
    for component, spec in pods(objects):
        env = {item["name"]: item.get("value") for item in spec["containers"][0]["env"]}
        assert env.get("SCHEDULER_TLS_SHARED_IDENTITY") == ("1" if component in SERVICES else None)


def test_a_shared_identity_can_be_accepted_before_anybody_has_it(chart: Any) -> None:
    values = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}, "tls": {"acceptShared": True}}
    objects = chart.render(values)
    assert mounted(objects) == {name: f"scheduler-grpc-tls-{name}" for name in SERVICES}
    for component, spec in pods(objects):
        env = {item["name"]: item.get("value") for item in spec["containers"][0]["env"]}
        assert env.get("SCHEDULER_TLS_SHARED_IDENTITY") == ("1" if component in SERVICES else None)


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"shared-certificate"}))
def test_nothing_else_allows_a_shared_identity(example: Any, name: str) -> None:
    for _, spec in pods(example(name)):
        assert all(item["name"] != "SCHEDULER_TLS_SHARED_IDENTITY" for item in spec["containers"][0]["env"])


def test_a_release_holds_no_identity_of_a_service_that_it_does_not_have(example: Any) -> None:
    assert set(certificates(example("executors-only"))) == {"scheduler-grpc-tls-executor"}


def test_executors_of_a_group_have_the_certificate_of_their_group(chart: Any) -> None:
    objects = chart.render({**LEAST, "executor": {"group": "pci"}})
    found = certificates(objects)
    assert "scheduler-grpc-tls-executor" not in found
    assert found["scheduler-grpc-tls-executor-pci"] == (
        ["spiffe://toban.internal/executor/pci"],
        ["pci.executor.toban.internal"],
    )
    assert mounted(objects) == {name: f"scheduler-grpc-tls-{name}" for name in SERVICES} | {
        "executor": "scheduler-grpc-tls-executor-pci"
    }


def test_executors_of_a_group_share_no_certificate(chart: Any) -> None:
    with pytest.raises(chart.helm.HelmError, match=r"executor\.group: a certificate that services share"):
        chart.render({**LEAST, "executor": {"group": "pci"}, "tls": {"secretName": "one"}})


def test_a_shared_certificate_names_only_services_of_the_release(chart: Any) -> None:
    off = {name: {"enabled": False} for name in ("coordinator", "logArchiver", "adminWeb", "migrate")}
    elsewhere = {"coordinators": ["c.example.com:50051"], "logArchivers": ["l.example.com:50051"]}
    objects = chart.render(
        {**off, "external": elsewhere, "tls": {"secretName": "one", "certManager": {"adminCli": False}}}
    )
    assert certificates(objects) == {"one": (["spiffe://toban.internal/shared/toban"], ["executor.toban.internal"])}


def test_authorities_of_a_config_map_take_the_place_of_those_in_the_secrets(chart: Any) -> None:
    values = {**LEAST, "tls": {"caBundle": {"name": "authorities"}}, "adminCli": {"enabled": True}}
    seen = set()
    for component, spec in pods(chart.render(values)):
        for volume in spec["volumes"]:
            if volume["name"] == "tls":
                seen.add(component)
                secret, bundle, _denied = volume["projected"]["sources"]
                assert secret["secret"]["name"] == f"scheduler-grpc-tls-{component}"
                assert {item["path"] for item in secret["secret"]["items"]} == {"tls.crt", "tls.key"}
                assert bundle["configMap"] == {"name": "authorities", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert seen == {*SERVICES, "admin-cli"}


def deny_lists(objects: list[Object]) -> dict[str, Any]:
    """Component → the source of its deny-list."""
    return {
        component: volume["projected"]["sources"][-1]["configMap"]
        for component, spec in pods(objects)
        for volume in spec["volumes"]
        if volume["name"] == "tls"
    }


@pytest.mark.parametrize("bundle", [{}, {"caBundle": {"name": "authorities"}}])
def test_a_first_denied_certificate_changes_no_pod(chart: Any, bundle: dict[str, Any]) -> None:
    values = {**LEAST, "adminCli": {"enabled": True}}
    before = chart.render({**values, "tls": bundle})
    assert not [one for one in before if one["metadata"]["name"] == "toban-denied"]
    after = chart.render({**values, "tls": {**bundle, "denied": {"serials": ["3f9a12", "0A:1B:2C"]}}})
    assert [one for one in after if one["metadata"]["name"] != "toban-denied"] == before
    wanted = {"name": "toban-denied", "items": [{"key": "denied", "path": "denied"}], "optional": True}
    assert deny_lists(after) == dict.fromkeys([*SERVICES, "admin-cli"], wanted)
    [made] = [one for one in after if one["metadata"]["name"] == "toban-denied"]
    assert made["kind"] == "ConfigMap"
    assert parse_denied(made["data"]["denied"]) == {0x3F9A12, 0x0A1B2C}


def test_releases_can_share_a_deny_list(chart: Any) -> None:
    objects = chart.render({**LEAST, "tls": {"denied": {"configMap": "revoked"}}})
    assert {one["name"] for one in deny_lists(objects).values()} == {"revoked"}
    assert not [one for one in objects if one["metadata"]["name"].endswith("denied")]


@pytest.mark.parametrize(
    ("denied", "says"),
    [
        ({"serials": ["xyz"]}, "/tls/denied/serials/0"),
        ({"serials": [123]}, "/tls/denied/serials/0"),
        ({"serials": ["3f"], "configMap": "revoked"}, "tls.denied: set configMap or serials"),
    ],
)
def test_a_deny_list_that_no_service_could_read_is_refused(chart: Any, denied: dict[str, Any], says: str) -> None:
    with pytest.raises(chart.helm.HelmError, match=says):
        chart.render({**LEAST, "tls": {"denied": denied}})


def test_certificates_that_are_there_already_are_mounted_by_their_names(example: Any) -> None:
    objects = example("own-certificates")
    assert certificates(objects) == {}
    wanted = {name: f"scheduler-grpc-tls-{name}" for name in SERVICES} | {"executor": "vault-executor-tls"}
    assert mounted(objects) == wanted
