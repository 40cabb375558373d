"""Fail-over: for how long nothing starts when the leader, an executor or PostgreSQL goes, on a stack with two coordinators and four executors.

Usage: failover.py [--samples N] [--check] [CASE...]; prints a JSON line a case: goal, median and maximum in seconds, with 100 samples or more p99.
--check: exit code 1 when a figure is above its goal (the maximum, with 100 samples or more p99), or a job was lost.

    crash, stop   SIGKILL, SIGSTOP to the leader -> the first process that a later term starts
    hand-over     `toban cluster demote`: the last process that the old term starts -> the first one of the next term
    attested      SIGKILL to an executor, its successor starts at once on the same state directory -> the last of its runs has started again
    no-successor  the same without a successor, until all its runs have started elsewhere
    machine       SIGKILL to an executor, its guards and its jobs, without a successor
    postgres      PostgreSQL ended as in a crash and started at once -> the first process; no job may be lost

A run each 25 ms is asked of coordinators that do not lead, and eight long runs go on beside it. Process starts are the executors' wall clock, as
`run show` prints them: one machine, one clock.
"""

import argparse
import functools
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bench_stack import whole_stack
from failover_samples import Bench

Sample = Callable[[Bench], list[float]]
# The goal in seconds, and what gives one sample, or one each of two executors.
CASES: dict[str, tuple[float | None, Sample]] = {
    "crash": (1.5, Bench.crash),
    "stop": (3.0, Bench.stop),
    "hand-over": (1.0, Bench.hand_over),
    "attested": (2.0, functools.partial(Bench.executor_death, successor=True)),
    "no-successor": (12.0, functools.partial(Bench.executor_death, victims=2)),
    "machine": (12.0, functools.partial(Bench.executor_death, guards=True, victims=2)),
    "postgres": (None, Bench.postgres_restart),
}
MANY = 100


def main(arguments: Sequence[str]) -> int:
    """Take the samples; 1 when `--check` is given and a goal is missed."""
    options = _options(arguments)
    met = True
    for case in options.cases or CASES:
        goal, sample = CASES[case]
        with whole_stack(executors=4, slots=8) as (stack, admin):
            bench = Bench(stack, admin, long_runs=8)
            seconds: list[float] = []
            while len(seconds) < options.samples:
                seconds += sample(bench)
                bench.settle()
            figure = _figure(case, seconds, goal, lost=bench.lost() if case == "postgres" else None)
        print(json.dumps(figure), flush=True)
        met = met and bool(figure["met"])
    return 1 if options.check and not met else 0


def _figure(case: str, seconds: list[float], goal: float | None, *, lost: int | None) -> dict[str, Any]:
    """The line of one case. Many samples are judged by p99, few by their maximum."""
    worst = statistics.quantiles(seconds, n=100)[98] if len(seconds) >= MANY else max(seconds)
    return {
        "bench": "failover",
        "case": case,
        "samples": len(seconds),
        "goal_s": goal,
        "p50_s": round(statistics.median(seconds), 2),
        **({"p99_s": round(worst, 2)} if len(seconds) >= MANY else {}),
        "max_s": round(max(seconds), 2),
        **({} if lost is None else {"jobs_lost": lost}),
        "met": (goal is None or worst <= goal) and not lost,
        "load": round(os.getloadavg()[0], 1),
    }


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="failover.py")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], default=[])
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
