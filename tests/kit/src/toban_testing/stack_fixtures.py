"""A complete stack for an end-to-end test: real servers and services as processes in a folder of the test."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import redis
from psycopg.rows import dict_row

from toban_stack.certs import TRUST_DOMAIN
from toban_stack.stack import Stack
from toban_stack.supervisor.policy import Backoff
from toban_testing.admin_client import AdminClient
from toban_testing.limit_checker import check_limits
from toban_testing.starter import end_with_this_process


@contextlib.contextmanager
def running_stack(
    home: Path,
    *,
    coordinators: int = 2,
    executors: int = 2,
    log_archivers: int = 1,
    admin_webs: int = 0,
    signers: int = 0,
    groups: tuple[str, ...] = (),
    slots: int = 16,
    environment: Mapping[str, str] | None = None,
    supervise: Backoff | None = None,
) -> Iterator[Stack]:
    """A ready stack; its limits are checked at the end, and it is stopped. Its logs are printed when the test failed.

    Each of `groups` has one more executor, which waits until the test has made its group. `environment` is added to its processes'.
    What a test kills stays dead, unless `supervise` gives the waits of a supervisor. The stack ends at the latest with this process.
    """
    end_with_this_process(home)
    stack = Stack(
        home=home,
        coordinators=coordinators,
        executors=executors,
        log_archivers=log_archivers,
        admin_webs=admin_webs,
        signers=signers,
        groups=groups,
        # Jobs of tests use folders of the tests, which are closed to other users.
        environment={"SCHEDULER_SLOTS": str(slots), "SCHEDULER_ISOLATION": "shared", **(environment or {})},
        supervise=supervise,
    )
    try:
        stack.up()
        with admin_of(stack) as admin:
            admin.until(lambda: _whole(admin, executors), of="a leader and every executor")
        yield stack
        # Without PostgreSQL there is nothing to look at.
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(stack.endpoints().database_url) as connection,
        ):
            check_limits(connection)
    except BaseException:
        sys.stderr.write(log_tails(stack))
        raise
    finally:
        stack.down()
        shutil.rmtree(home / "data", ignore_errors=True)


def admin_of(stack: Stack, *, without: str = "") -> AdminClient:
    """A client of the stack's coordinators, except of the process named `without`."""
    running = stack.processes()
    excluded = running[without].address if without else ""
    return AdminClient(
        coordinators=[address for address in stack.coordinators if address != excluded],
        log_archivers=stack.log_archivers,
        tls_dir=stack.home.tls / "admin-cli",
        trust_domain=TRUST_DOMAIN,
    )


def toban_process(stack: Stack, *words: str, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command `toban` as a process: nothing is set but where the stack is, and `environment`. `typed` is its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "toban_cli", *words],
        env=run_environment(stack, **environment),
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def run_environment(stack: Stack, **environment: str) -> dict[str, str]:
    """The environment of a command for this stack."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
    return {**base, "TOBAN_HOME": str(stack.home.root), **environment}


@contextlib.contextmanager
def made_whole(stack: Stack) -> Iterator[None]:
    """What the block kills is started again at its end: whether the block failed or not, every process serves afterwards."""
    before = stack.processes()
    try:
        yield
    finally:
        for name in before:
            if name not in stack.processes():
                stack.start(name)
        pids = {record.pid for record in stack.processes().values() if record.role == "executor"}
        on = "SELECT pid FROM scheduler.executors WHERE state = 'on'"
        with admin_of(stack) as admin:
            admin.until(
                lambda: bool(admin.cluster().epoch) and {row["pid"] for row in sql(stack, on)} == pids,
                of="a leader and every executor",
            )


def leader_name(stack: Stack, admin: AdminClient) -> str:
    """The process name of the leader."""
    return _name_of(stack, admin.cluster().leader_address)


def executor_name(stack: Stack, admin: AdminClient, worker_id: int) -> str:
    """The process name of the executor with this worker id."""
    [address] = [one.address for one in admin.cluster().executors if one.worker_id == worker_id]
    return _name_of(stack, address)


def sql(stack: Stack, statement: str, **params: Any) -> list[dict[str, Any]]:
    """Executes and commits a statement on the stack's database; returns its rows."""
    with (
        psycopg.connect(stack.endpoints().database_url, row_factory=dict_row, autocommit=True) as connection,
        connection.execute(statement, params) as cursor,
    ):
        return cursor.fetchall() if cursor.description else []


def flush_redis(stack: Stack) -> None:
    """Deletes all keys of the stack's Redis."""
    with redis.Redis.from_url(stack.endpoints().redis_url) as client:
        client.flushall()


def log_tails(stack: Stack) -> str:
    """The last lines that each process of the stack has logged."""
    found = ""
    for name, record in stack.processes().items():
        tail = Path(record.log).read_text(errors="replace").splitlines()[-25:]
        found += f"---- {name}\n" + "\n".join(tail) + "\n"
    return found


def _whole(admin: AdminClient, executors: int) -> bool:
    cluster = admin.cluster()
    return bool(cluster.epoch) and sum(one.state == "on" for one in cluster.executors) == executors


def _name_of(stack: Stack, address: str) -> str:
    [name] = [name for name, record in stack.processes().items() if record.address == address]
    return name
