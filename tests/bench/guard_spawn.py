"""Spawns a second through the guard alone: /bin/true, a window of jobs at once, two pipes each, trees verified empty.

Usage: guard_spawn.py [RUNS] [WINDOW]; prints one JSON line.
"""

import json
import select
import sys
import tempfile
import time
from pathlib import Path

from toban_executor.guard.launch import start_guards
from toban_executor.guard.wire import decode, encode


def order(incarnation: str, number: int) -> bytes:
    """The message that starts /bin/true as attempt `number`."""
    far = time.clock_gettime(time.CLOCK_BOOTTIME) + 600
    step = {"argv": ["/bin/true"], "timeout": 0}
    env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TOBAN_FENCE": str(number)}
    body = {"t": "spawn", "inc": incarnation, "run": number, "token": number, "steps": [step], "env": env}
    limits = {"timeout": 0, "grace": 2.0, "lease_grace": 2.0, "boot": far, "wall": time.time() + 600}
    return encode({**body, **limits, "cwd": "", "payload": "{}"})


def main() -> None:
    """Keep WINDOW jobs running until RUNS have ended."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    window = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    with tempfile.TemporaryDirectory() as state:
        guards = start_guards(incarnation="bench", state_dir=Path(state), slots=window)
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
                message = decode(by_fd[fd].recv(1 << 18))
                if not isinstance(message, dict) or message["t"] != "end":
                    continue
                done += 1
                failed += message["exit"] != 0
                if sent < runs:
                    sent += 1
                    by_fd[fd].send(order("bench", sent))
        seconds = time.perf_counter() - begun
        guards.close()
        guards.master.wait()
    figure = {"bench": "guard_spawn", "runs": done, "window": window, "failed": failed}
    print(json.dumps({**figure, "seconds": round(seconds, 3), "spawns_per_s": round(done / seconds)}))


if __name__ == "__main__":
    main()
