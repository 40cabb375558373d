"""Spawns a second through the guard alone: /bin/true, a window of jobs at once, two pipes each, trees verified empty.

Usage: guard_spawn.py [RUNS] [WINDOW] [shared|isolated]; prints one JSON line. `isolated` needs root.
"""

import json
import resource
import select
import sys
import time

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import Spawn
from toban_executor.decide.isolation import SandboxPlan, UidRange
from toban_executor.decide.models import AttemptEnd, StartOrder, StepOrder
from toban_executor.guard.launch import start_guards
from toban_executor.guard.protocol import decode_report, encode_command
from toban_fencing.executor_lease import Instant
from toban_testing.starter import temporary_folder


def order(incarnation: str, number: int) -> bytes:
    """The message that starts /bin/true as attempt `number`."""
    deadline = Instant(time.clock_gettime(time.CLOCK_BOOTTIME) + 600, time.time() + 600)
    step = StepOrder(type="command", argv=("/bin/true",))
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TOBAN_FENCE": str(number)}
    attempt = StartOrder(key=AttemptKey(number, number), steps=(step,), grace_seconds=2.0)
    spawn = Spawn(order=attempt, programs=("",), env=env, deadline=deadline, lease_grace=2.0)
    return encode_command(spawn, incarnation=incarnation, acked=0)


def main() -> None:
    """Keep WINDOW jobs running until RUNS have ended."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    window = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    kind = sys.argv[3] if len(sys.argv) > 3 else "shared"
    sandboxes = SandboxPlan(UidRange.parse("60706-61183"), namespaces=True) if kind == "isolated" else None
    with temporary_folder("toban-bench-") as state:
        guards = start_guards(incarnation="bench", state_dir=state, slots=window, sandboxes=sandboxes)
        by_fd = {sock.fileno(): sock for sock in guards.slots}
        poll = select.poll()
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        begun = time.perf_counter()
        sent = done = failed = 0
        for sock in guards.slots:
            sent += 1
            sock.send(order("bench", sent))
        while done < runs:
            for fd, _ in poll.poll():
                report = decode_report(by_fd[fd].recv(1 << 18))
                if not isinstance(report, AttemptEnd):
                    continue
                done += 1
                failed += report.exit_code != 0
                if sent < runs:
                    sent += 1
                    by_fd[fd].send(order("bench", sent))
        seconds = time.perf_counter() - begun
        guards.close()
        guards.supervisor.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = round(1000 * (used.ru_utime + used.ru_stime) / done, 3)
    figure = {
        "bench": "guard_spawn",
        "class": kind,
        "cpu_ms_a_run": cpu,
        "runs": done,
        "window": window,
        "failed": failed,
    }
    print(json.dumps({**figure, "seconds": round(seconds, 3), "spawns_per_s": round(done / seconds)}))


if __name__ == "__main__":
    main()
