"""Who may reach whom by the policies of the chart: compared with the table of callers that the services enforce."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_testing.k8s_objects import Object, pods
from toban_transport.authz import METHOD_RULES

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("coordinator", "executor", "log-archiver", "admin-web")
GRPC, ADMIN, SITE, POSTGRESQL, REDIS, S3 = 50051, 9464, 8080, 5432, 6379, 443
LEAST = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}}
OURS = {"app.kubernetes.io/name": "toban", "app.kubernetes.io/instance": "toban"}


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
    rows = re.findall(r"^\| (coordinator|executor|log-archiver|signer) \| `(\w+)` \|", text, re.MULTILINE)
    return {service: server for server, service in rows}


def arrows() -> set[tuple[str, str]]:
    """(caller, server) of METHOD_RULES, where the chart has the server: no signer. Health goes with any of them."""
    servers = servers_by_service()
    return {
        (caller, server)
        for method, callers in METHOD_RULES.items()
        if not method.startswith("/grpc.health.")
        for server in [servers[method.split("/")[1].removeprefix("toban_proto.v1.")]]
        if server in SERVICES
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
    assert len(arrows()) == 11


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


@pytest.mark.parametrize(
    ("s3", "port"),
    [
        ({"endpointUrl": "http://minio.storage.svc:9000"}, 9000),
        ({"endpointUrl": "http://minio.storage.svc"}, 80),
        ({"endpointUrl": "https://[fd00::1]:8333"}, 8333),
        ({"endpointUrl": "https://s3.example.com"}, 443),
        # A Service of the cluster: policies see the port of its pods.
        ({"endpointUrl": "http://minio.storage.svc", "port": 9000}, 9000),
        ({}, 443),
    ],
)
def test_the_object_store_is_reached_where_its_url_says(chart: Any, one: Any, s3: dict[str, Any], port: int) -> None:
    values = {**LEAST, "s3": {"bucket": "b", "existingSecret": "s3", **s3}}
    egress = one(chart.render(values), "NetworkPolicy", "toban-log-archiver")["spec"]["egress"]
    assert {item["port"] for rule in egress for item in rule["ports"]} == {53, GRPC, POSTGRESQL, port}


def test_a_secret_past_the_pooler_opens_its_own_port(chart: Any) -> None:
    """docs/kubernetes.md: services by a pooler, the migration directly."""
    direct = {"migrate": {"databaseSecret": {"name": "direct", "port": 5432}}}
    network = Network(chart.render({**LEAST, "postgresql": {"existingSecret": "pg", "port": 6432}, **direct}))
    reached = {
        name: [port for port in (5432, 6432) if network.leaves(labels_of(name), port)]
        for name in ("coordinator", "log-archiver", "migrate")
    }
    assert reached == {"coordinator": [6432], "log-archiver": [6432], "migrate": [5432]}


def test_coordinators_and_site_reach_an_openid_provider_that_has_peers(chart: Any) -> None:
    oidc = {"issuer": "https://id.example.com", "clientId": "toban", "ports": [8443]}
    for peers, wanted in (([], set()), ([{"ipBlock": {"cidr": "10.30.0.0/24"}}], {"coordinator", "admin-web"})):
        objects = chart.render({**LEAST, "oidc": {**oidc, "to": peers}})
        rules = [
            (found["metadata"]["labels"].get("app.kubernetes.io/component"), rule)
            for found in objects
            if found["kind"] == "NetworkPolicy"
            for rule in found["spec"].get("egress", [])
        ]
        reaching = [(name, rule["to"]) for name, rule in rules if {"port": 8443, "protocol": "TCP"} in rule["ports"]]
        assert {name for name, _ in reaching} == wanted and all(to == peers for _, to in reaching)


def test_the_secret_of_an_openid_client_is_in_the_site_alone(chart: Any) -> None:
    oidc = {"issuer": "https://id.example.com", "clientId": "toban", "clientSecret": {"name": "oidc-secret"}}
    ca = {"caSecret": {"name": "oidc-ca"}}
    objects = chart.render({**LEAST, "oidc": {**oidc, **ca}})
    holders = {"oidc-secret": set(), "oidc-ca": set()}
    for found in objects:
        for volume in found.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", []):
            name = volume.get("secret", {}).get("secretName")
            if name in holders:
                holders[name].add(found["metadata"]["name"])
    assert holders == {"oidc-secret": {"toban-admin-web"}, "oidc-ca": {"toban-admin-web", "toban-coordinator"}}


def test_dns_listens_elsewhere_on_openshift(chart: Any) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}]
    objects = chart.render({**LEAST, "networkPolicy": {"dns": peers, "dnsPorts": [5353]}})
    wanted = {"to": peers, "ports": [{"port": 5353, "protocol": protocol} for protocol in ("UDP", "TCP")]}
    policies = [found["spec"] for found in objects if found["kind"] == "NetworkPolicy" and "egress" in found["spec"]]
    assert len(policies) == 7
    assert all(policy["egress"][0] == wanted for policy in policies)


def test_every_service_reaches_the_collector_that_it_is_told(chart: Any) -> None:
    peers = [{"podSelector": {"matchLabels": {"app": "collector"}}}]
    tracing = {"endpoint": "http://collector.jobs.svc:4318/otlp", "to": peers}
    objects = chart.render({**LEAST, "adminCli": {"enabled": True}, "tracing": tracing})
    told = {
        component: int(re.findall(r":(\d+)", item["value"])[0])
        for component, spec in pods(objects)
        for item in spec["containers"][0]["env"]
        if item["name"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
    }
    # 4318 is http/protobuf, all that is spoken.
    assert told == dict.fromkeys([*SERVICES, "admin-cli"], 4318)
    network = Network(objects)
    for component in [*SERVICES, "migrate", "admin-cli", "external-worker"]:
        assert network.lets_out(labels_of(component), {"app": "collector"}, 4318) is (component in told)
        # A job shares the network of its executor.
        assert network.lets_out(labels_of(component), {"app": "other"}, 4318) is False


def test_the_collector_of_the_example_is_where_the_policy_lets_traces_go(example: Any, one: Any) -> None:
    objects = example("production")
    for component in SERVICES:
        egress = one(objects, "NetworkPolicy", f"toban-{component}")["spec"]["egress"]
        (rule,) = [rule for rule in egress if rule["ports"] == [{"port": 4318, "protocol": "TCP"}]]
        assert rule["to"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def test_a_second_release_in_a_namespace_works_with_the_first(chart: Any, example: Any) -> None:
    """The values are those of docs/kubernetes.md and examples/second-pool.yaml."""
    text = (ROOT / "docs" / "kubernetes.md").read_text().split("## Several releases in one namespace")[1]
    first = chart.render({**LEAST, **yaml.safe_load(text.split("```yaml")[1].split("```")[0])})
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "toban" / "examples" / "second-pool.yaml").read_text())
    second = chart.render(values, release="large")
    both = [*first, *second]
    keys = [(found["kind"], found["metadata"]["name"]) for found in both]
    assert len(set(keys)) == len(keys)
    issuer = {found["spec"]["issuerRef"]["name"] for found in second if found["kind"] == "Certificate"}
    assert issuer <= {found["metadata"]["name"] for found in first if found["kind"] == "Issuer"}

    network = Network(both)
    own = labels_of("executor")
    other = {**own, "app.kubernetes.io/instance": "large"}
    for executor in (own, other):
        assert network.connects(executor, labels_of("coordinator"), GRPC)
        assert network.connects(executor, labels_of("log-archiver"), GRPC)
        assert network.connects(labels_of("coordinator"), executor, GRPC)
    assert not network.connects(own, other, GRPC)
    assert not network.connects(labels_of("admin-web"), other, GRPC)


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
