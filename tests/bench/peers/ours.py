"""Toban itself: a stack of its own, which idles while a peer is measured."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Iterator

import due_schedules
import external_items
from bench_cpu import StackCpu
from bench_stack import whole_stack
from workloads import Irregular, backlog, delays, prepare, timed_start, until_idle

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import leader_name, sql

IDLE_SECONDS = 120.0
_ENDED = """
SELECT count(*) AS n FROM scheduler.job_runs
 WHERE job_name = %(job)s AND state = 'SUCCEEDED' AND attempt = 1"""


class Ours:
    """What a round measures of Toban. Its methods raise Irregular when a run was lost or ran twice."""

    def __init__(self, stack: Stack, admin: AdminClient) -> None:
        self._stack = stack
        self._admin = admin
        pids = {name: record.pid for name, record in stack.processes().items()}
        self._cpu = StackCpu(pids, leader=leader_name(stack, admin))
        self._rounds_of_due = 0

    def runs_per_s(self, count: int) -> float:
        """Runs a second of /bin/true, from the first enqueue to the last exit."""
        self._ask(leader=True)
        return backlog(self._admin, self._cpu, runs=count).runs_per_s

    def latency_ms(self, count: int, pause: float, *, leader: bool) -> float:
        """The median from the call to the exit of /bin/true, one after the other."""
        self._ask(leader=leader)
        moments: dict[int, float] = {}
        for _ in range(count):
            run_id, moment = timed_start(self._admin)
            moments[run_id] = moment
            time.sleep(pause)
        return statistics.median(delays(self._admin, moments))

    def noop_per_s(self, count: int) -> float:
        """Steps a second through an external worker that waits, from the first enqueue to the last completion."""
        self._ask(leader=True)
        return count / asyncio.run(self._through(count))

    def due_s(self, count: int) -> float:
        """From the second when so many schedules are due until all of their runs have started."""
        self._rounds_of_due += 1
        seen = due_schedules.come_due(self._stack, self._admin, count, prefix=f"due-{self._rounds_of_due}")
        reached = due_schedules.reached(seen["started"], 100, count)
        until_idle(self._admin, seconds=IDLE_SECONDS)
        if reached is None or seen["started"][-1][1] != count:
            raise Irregular(f"{seen['started'][-1][1]} runs of {count} schedules have started")
        return reached

    async def _through(self, count: int) -> float:
        before = await asyncio.to_thread(self._completed)
        async with external_items.connected(self._stack, self._admin) as stub:
            worker = external_items.Worker(stub)
            seconds = await external_items.flow(worker, self._admin, count)
        await asyncio.to_thread(until_idle, self._admin, seconds=IDLE_SECONDS)
        ended = await asyncio.to_thread(self._completed) - before
        if (worker.done, ended) != (count, count):
            raise Irregular(f"{worker.done} steps were completed and {ended} runs ended once, of {count}")
        return seconds

    def _completed(self) -> int:
        return int(sql(self._stack, _ENDED, job=external_items.JOB["metadata"]["name"])[0]["n"])

    def _ask(self, *, leader: bool) -> None:
        cluster = self._admin.cluster()
        addresses = [one.address for one in cluster.coordinators]
        self._admin.prefer(next(one for one in addresses if (one == cluster.leader_address) == leader))


@contextlib.contextmanager
def running() -> Iterator[Ours]:
    """A warm stack: two coordinators, two executors of 16 slots."""
    with whole_stack(coordinators=2, executors=2, slots=16) as (stack, admin):
        prepare(admin, runs=200)
        admin.apply(external_items.JOB)
        ours = Ours(stack, admin)
        ours.noop_per_s(external_items.CHUNK)
        yield ours
