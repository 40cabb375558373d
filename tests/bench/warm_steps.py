"""Steps a second through a guard of four slots: a warm function beside `python -c pass`, a warm management command beside `manage.py`.

Usage: warm_steps.py [ROUNDS] [SECONDS]; measures cold and warm alternately, ROUNDS times each for SECONDS, and prints one JSON line a pair with the
medians and the ratio beside its goal. The cold interpreters are those of .venv, as a job would name them.
"""

import json
import os
import select
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from toban_domain.outcome import AttemptKey
from toban_executor.adapters.step_commands import step_order
from toban_executor.decide.guard_types import Spawn
from toban_executor.decide.models import AttemptEnd, StartOrder, StepOrder
from toban_executor.guard.launch import start_guards
from toban_executor.guard.protocol import decode_report, encode_command
from toban_fencing.executor_lease import Instant
from toban_proto.v1 import executor_pb2
from toban_testing.starter import temporary_folder

INCARNATION = f"bench-warm-{os.getpid()}"
SHOP = Path(__file__).resolve().parents[2] / "examples" / "shop"
SLOTS = 4
GOALS = {"python": 4.0, "django": 50.0}


class Slots:
    """A guard whose slots each run one attempt after the other."""

    def __init__(self, socks: list[socket.socket]) -> None:
        self._socks = {sock.fileno(): sock for sock in socks}
        self._poll = select.poll()
        for fd in self._socks:
            self._poll.register(fd, select.POLLIN)
        self._number = 0

    def _start(self, sock: socket.socket, step: StepOrder) -> None:
        self._number += 1
        deadline = Instant(time.clock_gettime(time.CLOCK_BOOTTIME) + 600, time.time() + 600)
        order = StartOrder(key=AttemptKey(self._number, self._number), steps=(step,))
        env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "TOBAN_FENCE": str(self._number)}
        spawn = Spawn(order=order, programs=("",), env=env, deadline=deadline, lease_grace=2.0)
        sock.send(encode_command(spawn, incarnation=INCARNATION, acked=self._number << 8))

    def _ended(self) -> Iterator[socket.socket]:
        """Slots whose attempts have ended. Raises AssertionError when one has failed."""
        for fd, _event in self._poll.poll():
            report = decode_report(self._socks[fd].recv(1 << 18))
            if isinstance(report, AttemptEnd):
                assert report.exit_code == 0, report
                yield self._socks[fd]

    def _all(self, step: StepOrder, until: float) -> int:
        for sock in self._socks.values():
            self._start(sock, step)
        done, running = 0, len(self._socks)
        while running:
            for sock in self._ended():
                done += 1
                if time.perf_counter() < until:
                    self._start(sock, step)
                else:
                    running -= 1
        return done

    def rate(self, step: StepOrder, seconds: float) -> float:
        """Steps a second; the first one of each slot, which may start a zygote, does not count."""
        self._all(step, 0.0)
        begun = time.perf_counter()
        done = self._all(step, begun + seconds)
        return done / (time.perf_counter() - begun)


def pairs(folder: Path) -> dict[str, tuple[StepOrder, StepOrder]]:
    """The cold and the warm step of each pair."""
    (folder / "task.py").write_text("def run():\n    pass\n")
    commands = folder / "shop/shop/management/commands"
    shutil.copytree(SHOP, folder / "shop")
    head = "from django.core.management.base import BaseCommand\n\n\nclass Command(BaseCommand):\n"
    (commands / "nothing.py").write_text(f"{head}    def handle(self, **options):\n        pass\n")
    function = {"callable": "task:run", "python_path": [str(folder)], "warm": True}
    command = {"command": "nothing", "project": str(folder / "shop"), "interpreter": sys.executable, "warm": True}
    manage = str(folder / "shop/manage.py")
    return {
        "python": (_program("-c", "pass"), _step("python", function)),
        "django": (_program(manage, "nothing"), _step("django", command)),
    }


def _step(kind: str, body: Mapping[str, Any]) -> StepOrder:
    return step_order(executor_pb2.Step(type=kind, body_json=json.dumps(body)), allow_shell=False)


def _program(*arguments: str) -> StepOrder:
    return StepOrder(type="command", argv=(sys.executable, *arguments))


def main() -> None:
    """Print a line a pair."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    with temporary_folder("toban-bench-") as folder:
        guards = start_guards(incarnation=INCARNATION, state_dir=folder / "state", slots=SLOTS)
        slots = Slots(guards.slots)
        for name, (cold, warm) in pairs(folder).items():
            rates = [(slots.rate(cold, seconds), slots.rate(warm, seconds)) for _ in range(rounds)]
            figures = {
                "cold_per_s": round(statistics.median(one[0] for one in rates), 1),
                "warm_per_s": round(statistics.median(one[1] for one in rates), 1),
                "ratio": round(statistics.median(one[1] / one[0] for one in rates), 1),
            }
            print(json.dumps({"bench": "warm_steps", "pair": name, "rounds": rounds, **figures, "goal": GOALS[name]}))
        guards.close()
        guards.supervisor.wait()


if __name__ == "__main__":
    main()
