"""One peer, running: its environment, its server, its workers and the process that enqueues."""

import contextlib
import json
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compare.programs import environment_of

from peers.catalogue import Peer
from peers.figures import check_effects
from toban_stack import processes
from toban_stack.servers import Servers
from toban_stack.stack import Stack
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile

HERE = Path(__file__).resolve().parent
UV = HERE.parents[2] / ".venv" / "bin" / "uv"
# Of a line that `effects` leaves.
LINE_BYTES = 51
POLL_SECONDS = 0.01
# All is over by then, or the peer has failed.
LIMIT_SECONDS = 300.0
# After the last effect one that comes twice would follow; the worker's own work ends in this time too.
AFTERMATH_SECONDS = 1.0
WARM_TASKS = 96
# From the start of what has schedules until the second when they are due.
LEAD_SECONDS = 20.0
# Schedules that a producer makes a second, at least.
SCHEDULES_PER_S = 150


class PeerFailed(RuntimeError):
    """A peer cannot be measured; the message has its name and the reason."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of `effects`: seconds since the epoch."""

    number: int
    enqueued: float
    done: float


def install(peer: Peer, folder: Path) -> Path:
    """An environment with the peer and what it needs, in the pinned versions; its folder of programs. Raises PeerFailed."""
    environment = folder / "environment"
    pins = HERE / "requirements.txt"
    for words in (
        ["venv", str(environment)],
        ["pip", "install", "--python", str(environment / "bin/python"), "--constraint", str(pins), *peer.packages],
    ):
        done = subprocess.run(
            [UV, "--quiet", *words], env=environment_of(folder), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise PeerFailed(f"{peer.name} cannot be installed: {done.stderr.strip()}")
    return environment / "bin"


@contextlib.contextmanager
def served(peer: Peer, folder: Path) -> Iterator[dict[str, str]]:
    """A server of its own, as durable as ours; the variable with its URL."""
    home = StackPaths(folder)
    home.create()
    try:
        found = Servers(home=home, records=StateFile(path=home.state_file), environment={}).start(peer.server)
        yield {"BENCH_REDIS_URL": found.redis_url, "BENCH_DATABASE_URL": found.database_url}
    finally:
        Stack(home=folder).down()


class Theirs:
    """A peer whose workers run from `start` to `stop`."""

    def __init__(self, peer: Peer, *, programs: Path, folder: Path, variables: Mapping[str, str]) -> None:
        self._peer = peer
        self._programs = programs
        self._folder = folder
        self._effects = folder / "effects"
        self._environment = environment_of(
            folder,
            **{name: value for name, value in variables.items() if value},
            RQ_REDIS_URL=variables["BENCH_REDIS_URL"],
            BENCH_EFFECTS=str(self._effects),
            PYTHONPATH=str(HERE / "apps"),
            C_FORCE_ROOT="1",
        )
        self._workers: list[processes.ProcessRecord] = []
        self._producer: subprocess.Popen[str] | None = None
        if peer.setup:
            self._run_setup(peer.setup)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Workers that have all had something to do."""
        self._workers = [self._start(words) for words in self._peer.workers]
        try:
            with (self._folder / "producer.log").open("ab") as log:
                self._producer = subprocess.Popen(
                    [self._programs / "python", HERE / "apps/produce.py", self._peer.name],
                    env=self._environment,
                    cwd=self._folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            self.measure("true", WARM_TASKS)
            yield
        finally:
            if self._producer is not None:
                self._producer.kill()
                self._producer.communicate()
            for record in self._workers:
                processes.stop(record)

    def per_s(self, kind: str, count: int) -> float:
        """Tasks a second, from the first enqueue to the last effect."""
        done = self.measure(kind, count)
        return count / (max(one.done for one in done) - min(one.enqueued for one in done))

    def latency_ms(self, count: int, pause: float) -> float:
        """The median from the call to the exit of /bin/true, one after the other."""
        return statistics.median((one.done - one.enqueued) * 1000 for one in self.measure("true", count, pause))

    def due_s(self, count: int) -> float:
        """From the second when so many schedules are due until all have started."""
        at = int(time.time() + LEAD_SECONDS + (count / SCHEDULES_PER_S if self._peer.schedules else 0))
        self._effects.write_bytes(b"")
        if self._peer.schedules:
            self._order(kind="due", count=count, at=at)
        else:
            # Its schedules have minutes.
            at += -at % 60
            # The database of beat has a suffix that depends on the machine.
            for old in self._folder.glob("beat*"):
                old.unlink()
            self._workers.append(self._start(self._peer.due_worker, BENCH_DUE=f"{count} {at}"))
        if time.time() > at:
            raise PeerFailed(f"{self._peer.name} took until after they were due to make {count} schedules")
        done = self._wait(count)
        early = min(one.done for one in done) - at
        if early < 0:
            raise PeerFailed(f"{self._peer.name} started schedules {-early:.3f} s before they were due")
        return max(one.done for one in done) - at

    def measure(self, kind: str, count: int, pause: float = 0.0) -> list[Effect]:
        """Tasks numbered from 0, and what each of them left. Raises PeerFailed when one is lost or runs twice."""
        self._effects.write_bytes(b"")
        self._order(kind=kind, count=count, pause=pause)
        return self._wait(count)

    def _order(self, **order: object) -> None:
        producer = self._producer
        assert producer is not None and producer.stdin is not None and producer.stdout is not None
        try:
            producer.stdin.write(json.dumps(order) + "\n")
            producer.stdin.flush()
        except BrokenPipeError:
            pass
        if not producer.stdout.readline():
            raise PeerFailed(f"{self._peer.name} does not enqueue:\n{self._last_lines('producer')}")

    def _wait(self, count: int) -> list[Effect]:
        end = time.monotonic() + LIMIT_SECONDS
        while self._effects.stat().st_size < count * LINE_BYTES and time.monotonic() < end:
            if not all(processes.alive(record) for record in self._workers):
                raise PeerFailed(f"a worker of {self._peer.name} has ended:\n{self._last_lines('worker')}")
            if self._producer is None or self._producer.poll() is not None:
                raise PeerFailed(f"what enqueues has ended:\n{self._last_lines('producer')}")
            time.sleep(POLL_SECONDS)
        time.sleep(AFTERMATH_SECONDS)
        rows = [tuple(map(int, line.split())) for line in self._effects.read_text().splitlines()]
        try:
            check_effects((row[0] for row in rows), count, of=self._peer.name)
        except ValueError as error:
            raise PeerFailed(f"{error}\n{self._last_lines('worker')}") from None
        return [Effect(number, enqueued / 1e9, done / 1e9) for number, enqueued, done in rows]

    def _start(self, words: Sequence[str], **variables: str) -> processes.ProcessRecord:
        program, *arguments = words
        return processes.spawn(
            processes.Program(
                name=self._peer.name,
                role="worker",
                argv=("/usr/bin/env", "-C", str(self._folder), str(self._programs / program), *arguments),
                environment={**self._environment, **variables},
                log=self._folder / "worker.log",
            )
        )

    def _run_setup(self, words: Sequence[str]) -> None:
        program, *arguments = words
        done = subprocess.run(
            [self._programs / program, *arguments],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise PeerFailed(f"{self._peer.name}: {' '.join(words)} failed:\n{done.stderr}")

    def _last_lines(self, log: str) -> str:
        path = self._folder / f"{log}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-15:]) if path.exists() else ""
