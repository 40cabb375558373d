"""The compose file with a real Docker engine: up, jobs, logs, a leader's container killed, more and fewer replicas, keys, down.

`make compose-test` runs this; it is no part of `make test`. The tests share one project and go from top to bottom.
"""

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from toban_stack import container_secrets
from toban_testing.compose import TAG, Compose, missing
from toban_testing.site_client import PASSWORD, USER, SiteClient

PROBLEM = missing()
pytestmark = [
    pytest.mark.skipif(bool(PROBLEM), reason=f"compose-test needs Docker: {PROBLEM}"),
]
SERVICES = ("coordinator", "executor", "log-archiver", "admin-web")
JOBS = """
apiVersion: toban/v1
kind: Job
metadata: {name: quick}
spec: {allow_shell: true, steps: [{argv: [sh, -c, "echo run $TOBAN_RUN_ID on $(hostname) as $(id -u)"]}]}
---
apiVersion: toban/v1
kind: Job
metadata: {name: slow}
spec: {allow_shell: true, steps: [{argv: [sh, -c, "echo begins; sleep 12; echo ends"]}]}
"""


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    """A Toban that is up; everything of it is gone afterwards."""
    made = Compose(project=f"toban-test-{os.getpid()}")
    try:
        made.run("build", "--quiet", seconds=900)
        made.run("up", "-d", seconds=300)
        made.until(lambda: made.healthy(SERVICES), 120, "every container is healthy")
        made.toban("apply", "-f", "-", stdin=JOBS)
        yield made
    except BaseException:
        sys.stdout.write(made.run("logs", "--no-color", "--tail", "40"))
        raise
    finally:
        made.run("--profile", "*", "down", "-v", "--remove-orphans", "-t", "5", seconds=180)


OBJECT = """
import os, sys, boto3
given = {name: os.environ[f"SCHEDULER_S3_{name}"] for name in ("ENDPOINT_URL", "BUCKET", "ACCESS_KEY_FILE", "SECRET_KEY_FILE")}
keys = [open(given[f"{name}_KEY_FILE"]).read() for name in ("ACCESS", "SECRET")]
s3 = boto3.client("s3", "us-east-1", endpoint_url=given["ENDPOINT_URL"], aws_access_key_id=keys[0], aws_secret_access_key=keys[1])
if sys.argv[1] == "put":
    s3.put_object(Bucket=given["BUCKET"], Key="compose-test", Body=b"kept")
print(s3.get_object(Bucket=given["BUCKET"], Key="compose-test")["Body"].read().decode())
"""


def stored(compose: Compose, word: str) -> str:
    """What a log-archiver reads back from the object store; `put` writes it first."""
    container = compose.containers("log-archiver")[0]
    done = compose.inside(container, "/opt/toban/bin/python", "-c", OBJECT, word)
    return done.stdout.strip() or done.stderr


def start(compose: Compose, job: str) -> int:
    """The number of a run that was started."""
    found = re.search(r"\d+", compose.toban("run", "start", job, "-o", "name"))
    assert found
    return int(found[0])


def succeeded(compose: Compose, run: int) -> None:
    """The run ends, and well, at its first attempt."""
    said: dict[str, Any] = {}

    def ended() -> bool:
        said.update(compose.json("run", "get", str(run)))
        return said["state"] not in ("PENDING", "ASSIGNED", "RUNNING")

    compose.until(ended, 90, f"run {run} ends")
    assert (said["state"], said["attempt"], said["lost_count"]) == ("SUCCEEDED", 1, 0), said


def executors(compose: Compose) -> dict[str, dict[str, Any]]:
    """The executors that are there, by their names."""
    return {one["node_id"]: one for one in compose.json("executor", "list") if one["state"] in ("on", "draining")}


def leader(compose: Compose) -> tuple[str, int]:
    """Container id (its beginning) and epoch of who leads; nothing while nobody does."""
    cluster = compose.json("cluster", "status")
    return cluster["leader_address"].rpartition(":")[0], int(cluster["epoch"])


def test_a_job_runs_and_its_log_is_read(compose: Compose) -> None:
    said = compose.toban("run", "start", "quick", "--wait", "--follow")
    run = re.search(r"^run (\d+) on [0-9a-f]{12} as 6[01]\d{3}$", said, re.M)
    assert run and run[0] in compose.toban("run", "logs", run[1])
    succeeded(compose, int(run[1]))
    assert "error" not in compose.toban("doctor")


def test_the_first_administrator_reads_runs_at_the_site(compose: Compose) -> None:
    browser = SiteClient(f"127.0.0.1:{compose.environment['SITE_PORT']}")
    assert "quick" not in browser.get("/runs")
    secret = re.search(r"\b[0-9a-f]{64}\b", compose.toban("user", "bootstrap"))
    assert secret
    browser.submit("/first", "/first", link=secret[0], user=USER, password=PASSWORD, again=PASSWORD)
    if "quick" not in browser.get("/runs"):
        browser.sign_in()
    assert "quick" in browser.get("/runs")


def test_nothing_is_reached_from_outside_this_machine(compose: Compose) -> None:
    containers = json.loads(compose.docker("inspect", *compose.run("ps", "-q").split()))
    bound = {
        at["HostIp"] for one in containers for ports in one["NetworkSettings"]["Ports"].values() for at in ports or ()
    }
    assert bound == {"127.0.0.1"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_holds_only_what_it_may(compose: Compose, service: str) -> None:
    container = compose.containers(service)[0]
    share = container_secrets.SHARES[service]
    assert compose.inside(container, "id", "-u").stdout == ("0\n" if service == "executor" else "10001\n")
    assert compose.inside(container, "touch", "/opt/toban/x").returncode != 0
    assert compose.inside(container, "touch", "/run/keys/x").returncode != 0
    files = set(compose.inside(container, "ls", "/run/keys").stdout.split())
    assert files == set(share.secrets) | set(container_secrets.TLS_FILES)
    secrets = [compose.inside(container, "cat", f"/run/keys/{name}").stdout.strip() for name in share.secrets]
    assert all(secrets) and not [secret for secret in secrets if secret in json.dumps(container)]
    stores = compose.inside(container, "getent", "hosts", "postgres", "valkey", "seaweedfs").returncode == 0
    assert stores == (service in ("coordinator", "log-archiver"))
    # Jobs must not be able to reach the sign-in of the web interface.
    site = compose.inside(container, "getent", "hosts", "admin-web").returncode == 0
    assert site == (service != "executor")


def test_each_executor_has_volumes_and_limits_of_its_own(compose: Compose) -> None:
    found = compose.containers("executor")
    writable = [mount["Name"] for one in found for mount in one["Mounts"] if mount["RW"] and mount["Type"] == "volume"]
    assert len(writable) == len(set(writable)) == 2 * len(found)
    limits = {(one["HostConfig"]["Memory"], one["HostConfig"]["PidsLimit"]) for one in found}
    assert limits == {(2 << 30, 2048)}


def test_executors_are_isolated(compose: Compose) -> None:
    assert {one["isolation"] for one in executors(compose).values()} == {"isolated"}


def test_the_executors_image_has_no_driver_of_a_store(compose: Compose) -> None:
    probe = "import importlib.util as u, sys; print([m for m in sys.argv[1:] if u.find_spec(m)])"
    unwanted = (
        "psycopg",
        "psycopg_pool",
        "psycopg_binary",
        "redis",
        "hiredis",
        "boto3",
        "botocore",
        "sqlalchemy",
        "toban_store",
        "pytest",
        "pip",
    )
    for service in ("executor", "admin-web"):
        seen = compose.docker(
            "run",
            "--rm",
            "--entrypoint",
            "/opt/toban/bin/python",
            f"toban-{service}:{TAG}",
            "-c",
            probe,
            *unwanted,
            "grpc",
        )
        assert seen == "['grpc']\n"
    labels = json.loads(compose.docker("image", "inspect", f"toban-executor:{TAG}"))[0]["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "toban-executor"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_leaders_container_is_killed_and_another_leads(compose: Compose) -> None:
    run = start(compose, "slow")
    compose.until(lambda: "begins" in compose.toban("run", "logs", str(run)), 30, "the job has begun")
    old, epoch = leader(compose)
    compose.docker("kill", "--signal", "KILL", old)

    def another() -> bool:
        name, now = leader(compose)
        return bool(name) and name != old and now > epoch

    took = compose.until(another, 30, "another coordinator leads")
    sys.stdout.write(f"another coordinator led {took:.1f} s after the kill, seen by commands\n")
    succeeded(compose, run)
    assert compose.toban("run", "logs", str(run)).split() == ["begins", "ends"]
    succeeded(compose, start(compose, "quick"))
    compose.docker("start", old)
    compose.until(lambda: compose.healthy(["coordinator"]), 60, "the killed one is back")


def test_more_replicas_join_and_fewer_drain(compose: Compose) -> None:
    before = executors(compose)
    assert len(before) == 2
    compose.run("up", "-d", "--no-recreate", "--scale", "executor=5", "--scale", "coordinator=3", seconds=180)
    compose.until(lambda: len(executors(compose)) == 5, 60, "five executors")
    compose.until(lambda: compose.healthy(["executor", "coordinator"]), 60, "they are healthy")
    now = executors(compose)
    assert set(before) < set(now)
    assert {name: one["instance"] for name, one in now.items() if name in before} == {
        name: one["instance"] for name, one in before.items()
    }
    assert len({one["node_id"] for one in compose.json("cluster", "status")["coordinators"]}) == 3
    runs = [start(compose, "slow") for _ in range(6)]
    compose.until(
        lambda: all("begins" in compose.toban("run", "logs", str(run)) for run in runs), 60, "the jobs have begun"
    )
    # SIGTERM to four executors: their jobs end first, at their first attempt.
    compose.run("up", "-d", "--no-recreate", "--scale", "executor=1", "--scale", "coordinator=2", seconds=180)
    assert len(executors(compose)) == 1
    for run in runs:
        succeeded(compose, run)
    compose.run("up", "-d", "--no-recreate", seconds=180)
    compose.until(lambda: len(executors(compose)) == 2, 60, "two executors")


def test_an_executor_drains_ahead_of_its_stop(compose: Compose) -> None:
    """As the chart's preStop hook does it: the program is in the image, and may ask the process beside it."""
    drain = ["/opt/toban/bin/python", "-m", "toban_executor", "drain"]
    begun = [start(compose, "slow") for _ in range(2)]
    compose.until(lambda: all("begins" in compose.toban("run", "logs", str(run)) for run in begun), 60, "they run")
    for container in compose.containers("executor"):
        done = compose.inside(container, *drain)
        assert done.returncode == 0, done.stderr
        assert done.stderr.endswith("drained: nothing runs here any more\n")
    for run in begun:
        succeeded(compose, run)
    assert {one["state"] for one in executors(compose).values()} == {"draining"}
    compose.run("restart", "executor", seconds=180)
    compose.until(lambda: {one["state"] for one in executors(compose).values()} == {"on"}, 60, "they take work again")


def test_a_new_container_is_the_same_executor(compose: Compose) -> None:
    before = executors(compose)
    name = sorted(before)[0]
    compose.toban("executor", "drain", name, "--reason", "compose-test")
    ids = {one["Id"] for one in compose.containers("executor")}
    compose.run("up", "-d", "--force-recreate", "executor", seconds=180)
    assert ids.isdisjoint({one["Id"] for one in compose.containers("executor")})
    compose.until(
        lambda: executors(compose).get(name, {}).get("incarnation", "") != before[name]["incarnation"], 60, "it is back"
    )
    compose.until(lambda: len(executors(compose)) == 2, 60, "so is the other one")
    after = executors(compose)
    assert {one: after[one]["instance"] for one in after} == {one: before[one]["instance"] for one in before}
    assert (after[name]["state"], after[name]["drained"]) == ("draining", True)
    compose.toban("executor", "undrain", name, "--reason", "compose-test")
    succeeded(compose, start(compose, "quick"))


def test_a_second_up_changes_nothing_and_keys_are_renewed_without_a_restart(compose: Compose) -> None:
    def running() -> dict[str, str]:
        ids = compose.run("ps", "-q").split()
        return {one["Name"]: one["State"]["StartedAt"] for one in json.loads(compose.docker("inspect", *ids))}

    name = min(executors(compose))

    def shown() -> str:
        return str(executors(compose)[name]["certificate_not_after"])

    before, expires = running(), shown()
    compose.run("up", "-d", seconds=180)
    assert running() == before
    assert "complete and valid" in compose.run("run", "--rm", "certs")
    assert "6 certificates renewed" in compose.run("run", "--rm", "certs", "renew")
    compose.until(lambda: shown() > expires, 30, "executors have the new certificate")
    succeeded(compose, start(compose, "quick"))
    assert running() == before


def test_it_comes_back_with_its_data(compose: Compose) -> None:
    run = start(compose, "quick")
    succeeded(compose, run)
    instances = {name: one["instance"] for name, one in executors(compose).items()}
    assert stored(compose, "put") == "kept"
    compose.run("stop", seconds=180)
    compose.run("start", seconds=300)
    compose.until(lambda: compose.healthy(SERVICES), 120, "every container is healthy")
    assert {name: one["instance"] for name, one in executors(compose).items()} == instances
    compose.run("rm", "-s", "-v", "-f", "executor", seconds=180)
    compose.run("down", seconds=180)
    compose.run("up", "-d", seconds=300)
    compose.until(lambda: compose.healthy(SERVICES), 120, "every container is healthy")
    assert f"run {run} on" in compose.toban("run", "logs", str(run))
    assert stored(compose, "get") == "kept"
    # docs/docker.md: the volumes of executors go with their containers.
    assert len(executors(compose)) == 2 and instances.keys().isdisjoint(executors(compose))


def test_prometheus_finds_every_replica(compose: Compose) -> None:
    compose.run("--profile", "monitoring", "up", "-d", "--no-recreate", seconds=180)

    def asked(port: str, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{compose.environment[port]}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return "{}"

    def up() -> list[str]:
        targets = json.loads(asked("PROMETHEUS_PORT", "/api/v1/targets")).get("data", {"activeTargets": []})[
            "activeTargets"
        ]
        return sorted(one["labels"]["job"].removeprefix("toban-") for one in targets if one["health"] == "up")

    wanted = sorted(service for service in SERVICES for _ in compose.containers(service))
    compose.until(lambda: up() == wanted, 60, f"targets {wanted} are up")
    compose.until(lambda: asked("ALERTMANAGER_PORT", "/-/ready") == "OK", 30, "Alertmanager is ready")


def test_the_demo_profile_runs_the_examples(compose: Compose) -> None:
    compose.run("--profile", "demo", "up", "-d", "--no-recreate", seconds=180)
    # Its container applies the examples after `up` has returned.
    compose.until(lambda: "hello" in compose.toban("job", "list", "-o", "name").split(), 60, "the examples are applied")
    compose.until(
        lambda: bool(compose.json("run", "list", "--job", "hello", "--state", "SUCCEEDED")),
        120,
        "hello has run by its schedule, which is each minute",
    )
