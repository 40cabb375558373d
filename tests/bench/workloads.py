"""What the benches of runs do with a stack: a backlog of /bin/true, and one run at a time."""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench_cpu import StackCpu, ms_per_run
from bench_stack import job
from bench_wal import StackWal

from toban_testing.admin_client import AdminClient

JOB = "bench-true"
CHUNK = 500
WARM_RUNS = 50
BACKLOG_SECONDS = 300.0
POLL_SECONDS = 0.2
ACTIVE = ("PENDING", "DEFERRED", "ASSIGNED", "RUNNING")
# After the last exit: logs are shipped and marks removed in this time, seconds.
AFTERMATH_SECONDS = 0.5


class Irregular(RuntimeError):
    """A run failed or needed a second attempt: the measurement of that time is void."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """One backlog: seconds to enqueue it and to its last exit, CPU milliseconds a run by class with their total.

    `written` is what PostgreSQL wrote a run, as far as it is known.
    """

    runs: int
    enqueue_seconds: float
    seconds: float
    cpu_ms_per_run: Mapping[str, float]
    written: Mapping[str, float] = field(default_factory=dict)

    @property
    def runs_per_s(self) -> float:
        """From the first enqueue to the last exit."""
        return self.runs / self.seconds


def prepare(admin: AdminClient, *, runs: int = WARM_RUNS) -> None:
    """Apply the job and run it some times, so that every guard and cache is warm."""
    admin.apply(job(JOB, ["/bin/true"]))
    for run_id in admin.start(JOB, count=runs):
        admin.until_ended(run_id)


def backlog(
    admin: AdminClient, cpu: StackCpu, *, runs: int, job_name: str = JOB, wal: StackWal | None = None
) -> Backlog:
    """Enqueue `runs` of a job in chunks and wait for their end. Raises Irregular, TimeoutError."""
    mark = wal.mark() if wal is not None else None
    before = cpu.seconds()
    began = time.time()
    ids: list[int] = []
    while len(ids) < runs:
        ids += admin.start(job_name, count=min(CHUNK, runs - len(ids)))
    enqueued = time.time()
    until_idle(admin, seconds=BACKLOG_SECONDS)
    time.sleep(AFTERMATH_SECONDS)
    spent = ms_per_run(before, cpu.seconds(), runs)
    written = wal.per_run(mark, wal.mark(), runs) if wal is not None and mark is not None else {}
    ended = _last_exit(admin, job_name, ids)
    return Backlog(
        runs=runs, enqueue_seconds=enqueued - began, seconds=ended - began, cpu_ms_per_run=spent, written=written
    )


def until_idle(admin: AdminClient, *, seconds: float) -> None:
    """Wait until every run has ended. Raises TimeoutError."""
    # The counts of the cluster leave out runs whose order is not confirmed yet; reading runs costs more, so that comes last.
    _poll(lambda: not (cluster := admin.cluster()).pending and not cluster.running and not _active(admin), seconds)


def _active(admin: AdminClient) -> bool:
    return next(admin.runs(page=1, states=ACTIVE), None) is not None


def timed_start(admin: AdminClient) -> tuple[int, float]:
    """Start one run; its id, and the wall clock before the call."""
    moment = time.time()
    return admin.start(JOB)[0], moment


def delays(admin: AdminClient, moments: Mapping[int, float]) -> list[float]:
    """Milliseconds from each call to the exit of its process, once all have ended."""
    ends = [admin.until_ended(run_id).finished_at.ToMicroseconds() / 1e6 for run_id in moments]
    return [(end - moment) * 1000 for end, moment in zip(ends, moments.values(), strict=True)]


def _last_exit(admin: AdminClient, job_name: str, ids: list[int]) -> float:
    """The wall clock of the last exit. Raises Irregular unless each run succeeded at its first attempt."""
    wanted, oldest = set(ids), min(ids)
    listed = itertools.takewhile(lambda run: run.id >= oldest, admin.runs(job=job_name))
    runs = [run for run in listed if run.id in wanted]
    bad = [
        f"run {run.id} {run.state}, attempt {run.attempt}"
        for run in runs
        if run.state != "SUCCEEDED" or run.attempt != 1
    ]
    if bad or len(runs) != len(wanted):
        raise Irregular(f"{len(runs)} of {len(wanted)} runs found; failed or attempted again: {bad[:3]}")
    return max(run.finished_at.ToMicroseconds() for run in runs) / 1e6


def _poll(done: Callable[[], bool], seconds: float) -> None:
    # Not oftener than this: each question costs the stack CPU that counts as its own.
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"the stack was not idle within {seconds:g} s")
        time.sleep(POLL_SECONDS)
