"""Throws nearly right input at everything that reads input of others: no crash, no INTERNAL, and at most 100 ms of CPU time a case.

Usage: fuzz.py [--cases N] [--seed S] [--first I] [TARGET...]; prints a JSON line a target, and of each failure how to repeat it. Exit code 1 when
a case failed, or when a target took or refused every input (then it tests nothing).

    manifest, document, cron, crontab, schema, chunk, report, request    the code that reads it, in this process
    calls                                                                every gRPC method of a running stack
"""

import argparse
import contextlib
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import texts
from bench_stack import whole_stack
from calls import CPU_SECONDS, Calls

TRIES = 3
"""A case that takes longer is repeated: other threads, and the collector of garbage, count too."""
SHOWN = 5
Case = Callable[[random.Random], bool]
Cpu = Callable[[], float]
Limit = Callable[[], tuple[float, str]]


def main(arguments: Sequence[str]) -> int:
    """1 when something failed."""
    parser = argparse.ArgumentParser(prog="fuzz.py")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", default="toban")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("targets", nargs="*", choices=[*texts.TARGETS, "calls", []])
    given = parser.parse_args(arguments)
    good = True
    for name in given.targets or [*texts.TARGETS, "calls"]:
        with _opened(name) as (case, cpu, limit):
            good &= run(name, case, cpu, limit, cases=range(given.first, given.first + given.cases), seed=given.seed)
    return 0 if good else 1


@contextlib.contextmanager
def _opened(name: str) -> Iterator[tuple[Case, Cpu, Limit]]:
    if name in texts.TARGETS:
        yield texts.TARGETS[name], time.process_time, lambda: (CPU_SECONDS, name)
        return
    with whole_stack(coordinators=1, executors=1, slots=2) as (stack, _):
        calls = Calls(stack)
        pids = [
            record.pid for service, record in stack.processes().items() if service[:5] in ("coord", "log-a", "execu")
        ]
        try:
            yield calls.case, lambda: sum(map(_cpu_of, pids)), calls.limit
        finally:
            calls.close()


def _cpu_of(pid: int) -> float:
    """Raises FileNotFoundError when the process has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(name: str, case: Case, cpu: Cpu, limit: Limit, *, cases: range, seed: str) -> bool:
    """All cases of one target; True when none failed."""
    taken = failed = 0
    slowest = 0.0
    for number in cases:
        try:
            accepted, seconds = _once(case, cpu, limit, f"{seed}:{name}:{number}")
            most, what = limit()
            if seconds > most:
                raise AssertionError(f"{what} takes {seconds * 1000:.0f} ms of CPU time")
        except Exception:
            failed += 1
            if failed <= SHOWN:
                print(f"failed: fuzz.py --seed {seed} --first {number} --cases 1 {name}", file=sys.stderr)
                traceback.print_exc()
            continue
        taken += accepted
        slowest = max(slowest, seconds)
    figures = {
        "fuzz": name,
        "cases": len(cases),
        "taken": taken,
        "failed": failed,
        "slowest_ms": round(slowest * 1000, 1),
    }
    print(json.dumps(figures), flush=True)
    return not failed and (len(cases) == 1 or 0 < taken < len(cases))


def _once(case: Case, cpu: Cpu, limit: Limit, seed: str) -> tuple[bool, float]:
    """Whether the input was taken, and the least CPU time of up to three tries, seconds."""
    least = float("inf")
    for _ in range(TRIES):
        began = cpu()
        accepted = case(random.Random(seed))
        least = min(least, cpu() - began)
        if least <= limit()[0]:
            break
    return accepted, least


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
