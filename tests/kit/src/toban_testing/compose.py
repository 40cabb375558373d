"""A Toban installation in a separate `docker compose` project."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toban_runtime.clock import SystemClock
from toban_stack.ports import free_port
from toban_stack.wait import wait_until

ROOT = Path(__file__).resolve().parents[4]
TAG = "compose-test"


def missing() -> str:
    """Why `docker compose` is not usable here; empty when it is."""
    if not shutil.which("docker"):
        return "no `docker` on PATH"
    for words, problem in (
        (["info"], "no Docker engine answers"),
        (["compose", "version"], "`docker compose` is missing"),
    ):
        if subprocess.run(["docker", *words], capture_output=True, timeout=30, check=False).returncode != 0:
            return problem
    return ""


@dataclass
class Compose:
    """One project with its own names, ports, networks and volumes, so that several can run at the same time."""

    project: str
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ("SITE_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT")
        self.environment |= {"TOBAN_TAG": TAG, **{name: str(free_port()) for name in names}}

    def run(self, *words: str, seconds: float = 120, stdin: str = "") -> str:
        """The output of `docker compose WORDS`; asserts success and shows its error otherwise."""
        return self._docker("compose", "-p", self.project, *words, seconds=seconds, stdin=stdin)

    def docker(self, *words: str, seconds: float = 60) -> str:
        """The output of `docker WORDS`."""
        return self._docker(*words, seconds=seconds, stdin="")

    def toban(self, *words: str, stdin: str = "", seconds: float = 90) -> str:
        """The output of the toban command."""
        return self.run("exec", "-T", "cli", "toban", *words, stdin=stdin, seconds=seconds)

    def json(self, *words: str) -> Any:
        """The same as JSON."""
        return json.loads(self.toban(*words, "-o", "json"))

    def containers(self, service: str) -> list[dict[str, Any]]:
        """`docker inspect` of each container of a service, by number."""
        ids = self.run("ps", "-aq", service).split()
        found = json.loads(self.docker("inspect", *ids)) if ids else []
        return sorted(found, key=lambda one: int(one["Config"]["Labels"]["com.docker.compose.container-number"]))

    def inside(self, container: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a program in a container; does not check its exit code."""
        command = ["docker", "exec", str(container["Id"]), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def until(self, condition: Callable[[], bool], seconds: float, of: str) -> float:
        """Waits for a condition; returns the elapsed seconds. Fails after the timeout."""
        clock = SystemClock()
        began = clock.monotonic()
        assert wait_until(condition, seconds, 0.25), f"not within {seconds:g} s: {of}"
        return clock.monotonic() - began

    def healthy(self, services: Sequence[str]) -> bool:
        """Whether every container of the services is healthy."""
        states = [one["State"] for service in services for one in self.containers(service)]
        return all(state.get("Health", {"Status": "none"})["Status"] == "healthy" for state in states)

    def _docker(self, *words: str, seconds: float, stdin: str) -> str:
        done = subprocess.run(
            ["docker", *words],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **self.environment},
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, (
            f"docker {' '.join(words)}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
        return done.stdout
