"""Two coordinator processes of one host name: nobody takes one for the other, and the one that was paused stands again (docs/fencing.md 3.1, 3.4)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from toban_runtime.clock import SystemClock
from toban_stack.wait import wait_until
from toban_testing.admin_port import ask, token_file

CLOCK = SystemClock()
PROGRAM = (sys.executable, "-m", "toban_coordinator")


@dataclass
class Twin:
    """One process and what it says of itself."""

    process: subprocess.Popen[bytes]
    admin_port: int
    log: Path

    def role(self) -> str:
        try:
            found = json.loads(ask(f"127.0.0.1:{self.admin_port}", "/healthz", seconds=2)[1])
        except OSError:
            return ""
        return str(found["checks"].get("role", {}).get("value", ""))

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]


@pytest.fixture
def twins(pg_url: str, redis_url: str, tls: Path, tmp_path: Path) -> Iterator[list[Twin]]:
    """Two that run and know who leads; the leader first."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDULER_")}
    fields = {"DATABASE_URL": pg_url, "REDIS_URL": redis_url, "TLS_DIR": tls / "coordinator", "LOG_FORMAT": "json"}
    fields["ADMIN_TOKEN_FILE"] = token_file(tmp_path)
    made: list[Twin] = []
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number in (1, 2):
            # The same name of the machine, as two processes on one machine have it by default.
            mine = {**fields, "NODE_ID": "twin", "READY_FILE": tmp_path / f"ready-{number}"}
            environment = kept | {f"SCHEDULER_{name}": str(value) for name, value in mine.items()}
            with (tmp_path / f"log-{number}").open("wb") as out:
                started.append(subprocess.Popen(PROGRAM, env=environment, stdout=out, stderr=out))
        for number, process in enumerate(started, start=1):
            ready, log = tmp_path / f"ready-{number}", tmp_path / f"log-{number}"
            assert wait_until(ready.exists, 60), log.read_text()
            made.append(Twin(process, json.loads(ready.read_text())["admin_port"], log))
        assert wait_until(lambda: sorted(twin.role() for twin in made) == ["leader", "subleader"], 60)
        yield sorted(made, key=Twin.role)
    finally:
        for process in started:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def rows(url: str, statement: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row, autocommit=True) as connection:
        return connection.execute(statement).fetchall()


def roles(url: str) -> list[str]:
    """By worker id, as each last wrote it down."""
    return [row["role"] for row in rows(url, "SELECT role FROM scheduler.coordinators ORDER BY worker_id")]


def leader_row(url: str) -> dict[str, Any]:
    return rows(url, "SELECT epoch, holder FROM scheduler.leader")[0]


@pytest.mark.seed(25)
def test_two_of_one_host_name_follow_each_other(twins: list[Twin], pg_url: str, at_most: Any) -> None:
    first, second = twins
    assert wait_until(lambda: sorted(roles(pg_url)) == ["leader", "subleader"], 60)
    there = rows(pg_url, "SELECT node_id, incarnation, worker_id, status FROM scheduler.coordinators")
    assert {(row["node_id"], row["status"]) for row in there} == {("twin", "ok")}
    assert len({row["incarnation"] for row in there}) == len({row["worker_id"] for row in there}) == 2
    before, written = leader_row(pg_url), roles(pg_url)

    first.process.send_signal(signal.SIGSTOP)
    assert wait_until(lambda: second.role() == "leader", 60)
    between = leader_row(pg_url)
    first.process.send_signal(signal.SIGCONT)
    # Each has what the other one had: the place of the sub-leader is free when the new leader has given it back.
    assert wait_until(lambda: roles(pg_url) == written[::-1], 60)
    [ended] = first.said("stopped leading")
    assert ended["epoch"] == before["epoch"]

    # The one that was paused watches the other one now, sees it die, and stands again without a restart.
    second.process.kill()
    begun = CLOCK.monotonic()
    assert wait_until(lambda: first.role() == "leader", 60)
    assert CLOCK.monotonic() - begun < at_most(3.0)
    [evidence] = first.said("leader is dead: its stream broke and its port refuses connections")
    after = leader_row(pg_url)
    assert evidence["epoch"] == between["epoch"]
    assert before["epoch"] < between["epoch"] < after["epoch"]
    assert after["holder"] == before["holder"] != between["holder"]
