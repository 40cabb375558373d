"""One sample of each kind of fail-over on a running stack: what is done to it, and the seconds until work goes on."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from bench_stack import job
from psycopg.rows import dict_row

from toban_domain.errors import TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.processes import ProcessRecord, alive, descendants, kill_all
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, leader_name

SHORT, LONG = "bench-true", "bench-sleep"
STREAM_SECONDS = 0.025
# Between two samples: a leader that was deposed stays out of the election for 2 s, and executors have a few heartbeats.
SETTLE_SECONDS = 3.0
SAMPLE_SECONDS = 60.0
POLL_SECONDS = 0.05

TERM = "SELECT epoch FROM scheduler.leader"
# The last process that the old term has started since :since, and the first one of a later term.
TURN = """
SELECT EXTRACT(epoch FROM max(started_at) FILTER (WHERE leader_epoch = %(old)s))::float AS last,
       EXTRACT(epoch FROM min(started_at) FILTER (WHERE leader_epoch > %(old)s))::float AS first
  FROM scheduler.job_attempts WHERE dispatched_at > to_timestamp(%(since)s)
"""
LIVE = """
SELECT r.id, r.token, e.node_id FROM scheduler.runs_live r JOIN scheduler.executors e ON e.incarnation = r.assigned_incarnation
 WHERE r.job_name = %(job)s AND r.state = 'RUNNING'
"""
RESTARTED = """
SELECT run_id, EXTRACT(epoch FROM min(started_at))::float AS at FROM scheduler.job_attempts
 WHERE run_id = ANY(%(runs)s) AND dispatched_at > to_timestamp(%(since)s) AND started_at IS NOT NULL GROUP BY run_id
"""
FIRST = "SELECT EXTRACT(epoch FROM min(started_at))::float AS first FROM scheduler.job_attempts WHERE dispatched_at > to_timestamp(%(since)s)"
LOST = """
SELECT count(*) AS n FROM scheduler.job_runs
 WHERE lost_count > 0 OR attempt > 1 OR state NOT IN ('SUCCEEDED', 'RUNNING', 'PENDING', 'ASSIGNED')
"""


class Bench:
    """A stack under a steady load of short runs, and beside it some long ones."""

    def __init__(self, stack: Stack, admin: AdminClient, *, long_runs: int) -> None:
        self.stack = stack
        self.admin = admin
        self._url = stack.endpoints().database_url
        self._pause = threading.Event()
        admin.apply(job(SHORT, ["/bin/true"]), job(LONG, ["sleep", "36000"], max_lost=1000))
        admin.start(LONG, count=long_runs)
        self._long_runs = long_runs
        self.settle()

    def settle(self) -> None:
        """Wait until every long run runs and the stack is whole."""
        self._pause.wait(SETTLE_SECONDS)
        self._until(lambda: len(self.rows(LIVE, job=LONG)) == self._long_runs or None, of="the long runs run")

    def rows(self, statement: str, **params: Any) -> list[dict[str, Any]]:
        """The rows of one statement."""
        with psycopg.connect(self._url, row_factory=dict_row, autocommit=True) as connection:
            return connection.execute(statement, params).fetchall()

    # ---- the leader

    def crash(self) -> list[float]:
        """SIGKILL to the leader: seconds until the next term starts a process."""
        with self._stream() as (leader, old):
            began = time.time()
            self.stack.kill(leader, signal.SIGKILL)
            first, _ = self._next_term(old, began)
        self.stack.start(leader)
        return [first - began]

    def stop(self) -> list[float]:
        """SIGSTOP to the leader: seconds until the next term starts a process."""
        with self._stream() as (leader, old):
            began = time.time()
            self.stack.kill(leader, signal.SIGSTOP)
            try:
                first, _ = self._next_term(old, began)
            finally:
                self.stack.kill(leader, signal.SIGCONT)
        return [first - began]

    def hand_over(self) -> list[float]:
        """A demotion: seconds between the last process that the old term starts, and the first one of the next."""
        with self._stream() as (_leader, old):
            began = time.time()
            request = pb.DemoteLeaderRequest(epoch=old, reason="bench")
            self.admin.call(rpc.OperationsStub, "DemoteLeader", request, timeout=20.0)
            first, last = self._next_term(old, began)
        return [first - max(last, began)]

    @contextmanager
    def _stream(self) -> Iterator[tuple[str, int]]:
        """A run each 25 ms, asked of coordinators that do not lead: the leader's name, and its epoch."""
        leader = leader_name(self.stack, self.admin)
        stop = threading.Event()
        with admin_of(self.stack, without=leader) as client:

            def start() -> None:
                while not stop.wait(STREAM_SECONDS):
                    with suppress(TobanError):
                        client.start(SHORT)

            thread = threading.Thread(target=start)
            thread.start()
            try:
                self._pause.wait(0.5)
                yield leader, self.rows(TERM)[0]["epoch"]
            finally:
                stop.set()
                thread.join()

    def _next_term(self, old: int, since: float) -> tuple[float, float]:
        """When the next term has started its first process, and the old one its last."""

        def turned() -> tuple[float, float] | None:
            [row] = self.rows(TURN, old=old, since=since - 1)
            return (row["first"], row["last"] or since) if row["first"] else None

        found: tuple[float, float] = self._until(turned, of="the next term starts a run")
        return found

    # ---- an executor

    def executor_death(self, *, successor: bool = False, guards: bool = False, victims: int = 1) -> list[float]:
        """SIGKILL to executors, and to their guards and jobs too: for each the seconds until the last of its runs has started again.

        With a `successor`, one starts at once on the same state directory.
        """
        live = self.rows(LIVE, job=LONG)
        names = [row["node_id"] for row in live]
        chosen = sorted(set(names), key=names.count)[-victims:]
        runs = {name: [row["id"] for row in live if row["node_id"] == name] for name in chosen}
        records = {name: self.stack.processes()[name] for name in chosen}
        below = {name: descendants([record]) for name, record in records.items()}
        began = {}
        for name in chosen:
            began[name] = time.time()
            self.stack.kill(name, signal.SIGKILL)
            if guards:
                kill_all(below[name])
            if successor:
                self._until_gone(records[name])
                self.stack.start(name)
        seconds = [self._restarted(runs[name], began[name]) for name in chosen]
        for name in chosen * (not successor):
            self.stack.start(name)
        return seconds

    def _restarted(self, runs: list[int], since: float) -> float:
        def all_of_them() -> float | None:
            found = self.rows(RESTARTED, runs=runs, since=since)
            return max(row["at"] for row in found) if len(found) == len(runs) else None

        at: float = self._until(all_of_them, of="the runs start again")
        return at - since

    # ---- PostgreSQL

    def postgres_restart(self) -> list[float]:
        """PostgreSQL is ended as in a crash and started again at once: seconds until a process starts."""
        with self._stream():
            began = time.time()
            record = self.stack.processes()["postgres"]
            self.stack.kill("postgres", signal.SIGQUIT)
            self._until_gone(record)
            self.stack.start("postgres")
            at: float = self._until(lambda: self.rows(FIRST, since=began)[0]["first"], of="a run starts")
        return [at - began]

    def lost(self) -> int:
        """Runs of this stack that were lost, tried again or failed."""
        count: int = self.rows(LOST)[0]["n"]
        return count

    def _until_gone(self, record: ProcessRecord) -> None:
        """One that still ends would not be started again."""
        self._until(lambda: None if alive(record) else True, of=f"{record.name} has ended")

    def _until(self, what: Any, *, of: str) -> Any:
        end = time.monotonic() + SAMPLE_SECONDS
        while time.monotonic() < end:
            with suppress(psycopg.OperationalError, TobanError):
                if (found := what()) is not None:
                    return found
            self._pause.wait(POLL_SECONDS)
        raise TimeoutError(f"not within {SAMPLE_SECONDS:g} s: {of}")
