"""What a pod of the chart may do, and who may reach whom: compared with the table of callers that the services enforce."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toban_transport.authz import METHOD_RULES, SHARED_BY

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "deploy" / "helm" / "toban" / "examples").glob("*.yaml"))
SERVICES = ("coordinator", "executor", "log-archiver", "admin-web")
GRPC, ADMIN, SITE, POSTGRESQL, REDIS, S3 = 50051, 9464, 8080, 5432, 6379, 443
OURS = {"app.kubernetes.io/name": "toban", "app.kubernetes.io/instance": "toban"}
Object = dict[str, Any]


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """(component, pod template) of everything that makes pods."""
    for found in objects:
        if "template" in found.get("spec", {}):
            template = found["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


def containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", []), *spec["containers"]]


# ---------------------------------------------------------------------------------------- pods


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_pod_has_rights_that_it_does_not_need(example: Any, name: str) -> None:
    for _, spec in pods(example(name)):
        assert spec["automountServiceAccountToken"] is False
        # Otherwise a Service called `scheduler` would set SCHEDULER_PORT in every pod, an unknown variable that stops the start.
        assert spec["enableServiceLinks"] is False
        security = spec["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"], security["fsGroup"]) == (True, 10001, 10001)
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"}
        assert all("hostPath" not in volume for volume in spec["volumes"])
        for container in containers(spec):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


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


def test_an_executors_grace_covers_its_jobs(chart: Any, one: Any) -> None:
    from toban_executor.loops.retire import HAND_IN_SECONDS, KILL_SECONDS

    values = {
        "postgresql": {"existingSecret": "pg"},
        "redis": {"existingSecret": "rd"},
        "executor": {"drainSeconds": 7200},
    }
    spec = one(chart.render(values), "StatefulSet", "toban-executor")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["SCHEDULER_SHUTDOWN_TIMEOUT_SECONDS"] == "7200"
    # Outcomes, lines, and what is told to coordinators, one after the other; then the guards and the servers end.
    assert spec["terminationGracePeriodSeconds"] >= 7200 + KILL_SECONDS + 3 * HAND_IN_SECONDS + 10


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
        component: volume["secret"]["secretName"]
        for component, spec in pods(objects)
        for volume in spec["volumes"]
        if volume["name"] == "tls"
    }


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


def test_certificates_that_are_there_already_are_mounted_by_their_names(example: Any) -> None:
    objects = example("own-certificates")
    assert certificates(objects) == {}
    wanted = {name: f"scheduler-grpc-tls-{name}" for name in SERVICES} | {"executor": "vault-executor-tls"}
    assert mounted(objects) == wanted


# ---------------------------------------------------------------------------------------- network


def matches(selector: Object, labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def labels_of(component: str) -> dict[str, str]:
    return {**OURS, "app.kubernetes.io/component": component}


class Network:
    """Evaluates policies as Kubernetes does: what selects a pod closes it, rules are added up. For pods of the release's namespace."""

    def __init__(self, objects: list[Object]) -> None:
        self._policies = [found["spec"] for found in objects if found["kind"] == "NetworkPolicy"]

    def _rules(self, labels: dict[str, str], direction: str) -> list[Object] | None:
        """None: nothing selects the pod, so everything is open."""
        mine = [
            policy
            for policy in self._policies
            if direction.capitalize() in policy["policyTypes"] and matches(policy["podSelector"], labels)
        ]
        return [rule for policy in mine for rule in policy.get(direction) or []] if mine else None

    def _lets(self, labels: dict[str, str], direction: str, other: dict[str, str] | None, port: int) -> bool:
        """`other` None: a peer outside of the cluster."""
        rules = self._rules(labels, direction)
        if rules is None:
            return True
        side = "from" if direction == "ingress" else "to"
        return any(
            any(item["port"] == port and item["protocol"] == "TCP" for item in rule["ports"])
            and (side not in rule or any(self._is(peer, other) for peer in rule[side]))
            for rule in rules
        )

    def _is(self, peer: Object, labels: dict[str, str] | None) -> bool:
        if "podSelector" not in peer or "namespaceSelector" in peer:
            return False
        return labels is not None and matches(peer["podSelector"], labels)

    def lets_out(self, client: dict[str, str], server: dict[str, str], port: int) -> bool:
        return self._lets(client, "egress", server, port)

    def lets_in(self, client: dict[str, str], server: dict[str, str], port: int) -> bool:
        return self._lets(server, "ingress", client, port)

    def connects(self, client: dict[str, str], server: dict[str, str], port: int) -> bool:
        return self.lets_out(client, server, port) and self.lets_in(client, server, port)

    def leaves(self, client: dict[str, str], port: int) -> bool:
        return self._lets(client, "egress", None, port)


def servers_by_service() -> dict[str, str]:
    """gRPC service → who serves it, from the table in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text().split("## Who may call what")[1].split("##")[0]
    found: dict[str, str] = {}
    for server, services in re.findall(r"^\| (coordinator|executor|log-archiver) \| ([^|]+) \|", text, re.MULTILINE):
        for service in re.sub(r"\([^)]*\)", "", services).split(","):
            found[service.strip()] = server
    return found


def arrows() -> set[tuple[str, str]]:
    """(caller, server) of METHOD_RULES. Health goes with any of them."""
    servers = servers_by_service()
    return {
        (caller, servers[method.split("/")[1].removeprefix("toban_proto.v1.")])
        for method, callers in METHOD_RULES.items()
        if not method.startswith("/grpc.health.")
        for caller in callers
    }


@pytest.mark.parametrize("name", ["minimal", "production", "own-certificates", "shared-certificate"])
def test_grpc_connections_are_exactly_those_that_the_table_of_callers_needs(example: Any, name: str) -> None:
    network = Network(example(name))
    everybody = [*SERVICES, "migrate", "admin-cli", "external-worker", "a part of a later version"]
    pairs = {(client, server) for client in everybody for server in everybody}
    # Each side alone, too: a door that only the other side keeps shut is one mistake from being open.
    assert {pair for pair in pairs if network.lets_out(*map(labels_of, pair), GRPC)} == arrows()
    assert {pair for pair in pairs if network.lets_in(*map(labels_of, pair), GRPC)} == arrows()
    assert len(arrows()) == 10


def test_strangers_and_neighbours_reach_nothing(least: Any) -> None:
    network = Network(least)
    strangers = [
        {},
        {"app.kubernetes.io/component": "coordinator"},
        {**labels_of("coordinator"), "app.kubernetes.io/instance": "other"},
    ]
    for stranger in strangers:
        for server in SERVICES:
            for port in (GRPC, ADMIN, SITE):
                assert not network.connects(stranger, labels_of(server), port)


def test_only_owners_reach_their_stores(example: Any) -> None:
    network = Network(example("minimal"))
    everybody = (*SERVICES, "migrate", "admin-cli", "external-worker")

    def who(port: int) -> set[str]:
        return {name for name in everybody if network.leaves(labels_of(name), port)}

    assert who(POSTGRESQL) == {"coordinator", "log-archiver", "migrate"}
    assert who(REDIS) == {"coordinator"}
    # Without a bucket nobody needs S3; and nobody reaches the metadata service of a cloud (port 80).
    assert who(S3) == who(80) == set()


def test_with_a_bucket_the_log_archiver_alone_reaches_s3(chart: Any) -> None:
    values = {
        "postgresql": {"existingSecret": "pg"},
        "redis": {"existingSecret": "rd"},
        "s3": {"bucket": "b", "existingSecret": "s3"},
    }
    network = Network(chart.render(values))
    assert [name for name in SERVICES if network.leaves(labels_of(name), S3)] == ["log-archiver"]


def test_peers_that_are_named_narrow_a_store(example: Any, one: Any) -> None:
    egress = one(example("production"), "NetworkPolicy", "toban-coordinator")["spec"]["egress"]
    to = {rule["ports"][0]["port"]: rule["to"] for rule in egress if rule["ports"][0]["port"] in (POSTGRESQL, REDIS)}
    assert to[POSTGRESQL] == [{"ipBlock": {"cidr": "10.20.0.0/24"}}]
    assert to[REDIS] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "valkey"}}}]
    (ports,) = [[item["port"] for item in rule["ports"]] for rule in egress if rule["ports"][0]["port"] == REDIS]
    assert ports == [6379, 26379]


def test_the_site_is_reached_by_its_proxy_and_only_when_it_is_exposed(example: Any) -> None:
    proxy = {"app.kubernetes.io/name": "oauth2-proxy"}
    assert Network(example("production")).connects(proxy, labels_of("admin-web"), SITE) is True
    assert Network(example("production")).connects({}, labels_of("admin-web"), SITE) is False
    assert Network(example("minimal")).connects(proxy, labels_of("admin-web"), SITE) is False


def test_prometheus_alone_reaches_the_admin_ports(least: Any) -> None:
    for found in least:
        if found["kind"] == "NetworkPolicy":
            for rule in found["spec"].get("ingress") or []:
                if rule["ports"][0]["port"] == ADMIN:
                    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
                    assert rule["from"] == peers


def test_every_pod_asks_for_names_in_kube_system_alone(least: Any) -> None:
    components = {component for component, _ in pods(least)} | {"admin-cli", "external-worker"}
    asking = set()
    for found in least:
        for rule in (found["spec"].get("egress") or []) if found["kind"] == "NetworkPolicy" else []:
            if rule["ports"][0]["port"] == 53:
                assert rule["to"] == [
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
                ]
                asking.add(found["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"])
    assert asking == components
