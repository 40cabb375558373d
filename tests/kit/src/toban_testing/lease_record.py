"""Jobs that stamp each line of their own record with CLOCK_BOOTTIME, and the leases that their executors held (tests/faults/leased_executor.py).

Together they prove, independently of Toban, that no process of a job ran outside a lease, that no run was live twice, and which attempts went on.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STAMP_SECONDS = 0.01
"""/proc/uptime is CLOCK_BOOTTIME, cut to hundredths."""
FREEZE_ALLOWANCE = 0.2
"""What docs/fencing.md 3.7 allows after the deadline."""
SAFE_SECONDS = 0.8
"""After the deadline: the hold side's margin (0.3 s) and the take side's (0.5 s). No other execution of a run begins earlier, however late a busy
machine schedules guards and executors; so this bound, unlike the allowance, holds at any load."""

# No process is started for a stamp, so that a tick of many jobs costs little. LOCK=0: for runs that are given away while an attempt is frozen,
# which keeps its lock.
_SCRIPT = """
file="$RECORD/run-$TOBAN_RUN_ID"
note() { read up idle < /proc/uptime; echo "$1 $TOBAN_FENCE $TOBAN_INCARNATION $$ $up" >> "$file"; }
if [ "$LOCK" = 1 ]; then
  exec 8> "$RECORD/lock-$TOBAN_RUN_ID"
  flock -n 8 || { note overlap; exit 99; }
fi
note begin
while [ ! -e "$RECORD/end" ]; do note tick; sleep "$PAUSE"; done
note end
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a run's record: what (begin | tick | end | overlap), the attempt, its executor's incarnation, process, and CLOCK_BOOTTIME."""

    what: str
    token: int
    incarnation: str
    pid: int
    at: float


@dataclass(frozen=True, slots=True)
class Lease:
    """One grant: an executor had it at `at` and might let jobs run until `deadline`, CLOCK_BOOTTIME."""

    at: float
    deadline: float


class LeaseRecord:
    """The folder that jobs and executors write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leases_folder = folder / "leases"
        self.leases_folder.mkdir(parents=True)

    def job(self, name: str, *, pause: float = 0.1, lock: bool = True, **spec: Any) -> dict[str, Any]:
        """A job that stamps a line every `pause` seconds until `end`."""
        step = {"id": "main", "type": "command", "argv": ["sh", "-c", _SCRIPT]}
        env = {"RECORD": str(self.folder), "PAUSE": str(pause), "LOCK": str(int(lock))}
        body = {"steps": [step], "env": env, "allow_shell": True, **spec}
        return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}

    def end(self) -> None:
        """Lets every job end by itself."""
        (self.folder / "end").touch()

    def begin_again(self) -> None:
        """Jobs that start from now on run until the next `end`."""
        (self.folder / "end").unlink()

    def lines(self, run_id: int) -> list[Line]:
        """The record of a run so far. A line is written at once and shorter than a block, so lines never mix."""
        file = self.folder / f"run-{run_id}"
        rows = (row.split() for row in file.read_text().splitlines()) if file.exists() else ()
        return [Line(what, int(token), incarnation, int(pid), float(at)) for what, token, incarnation, pid, at in rows]

    def leases(self, incarnation: str) -> list[Lease]:
        """The grants of an incarnation so far."""
        file = self.leases_folder / incarnation
        rows = (row.split() for row in file.read_text().splitlines()) if file.exists() else ()
        return [Lease(float(at), float(deadline)) for at, deadline in rows]

    def deadline(self, incarnation: str) -> float:
        """The end of the last lease."""
        return max(lease.deadline for lease in self.leases(incarnation))

    def lateness(self, run_id: int, *, since: float = -math.inf) -> float:
        """How far a process of the run ran outside a lease, at worst: seconds, 0 when it never did. Before `since` it may have."""
        leases: dict[str, list[Lease]] = {}
        worst = 0.0
        for line in self.lines(run_id):
            if line.incarnation not in leases:
                leases[line.incarnation] = self.leases(line.incarnation)
            worst = max(worst, min(_outside(line.at, leases[line.incarnation]), line.at - since))
        return worst


def _outside(at: float, leases: Sequence[Lease]) -> float:
    """Seconds since the last deadline, unless a lease was held then."""
    begun = [lease.deadline for lease in leases if lease.at <= at + STAMP_SECONDS]
    return max(0.0, at - max(begun)) if begun else float("inf")


def check_alone(lines: Sequence[Line]) -> None:
    """Asserts that attempts of the run followed one another: no overlap, each begins once, and none writes after a later one began."""
    assert not [line for line in lines if line.what == "overlap"], lines[-3:]
    tokens = [line.token for line in lines]
    assert tokens == sorted(tokens), f"an attempt went on after its successor had begun: {_turns(lines)}"
    begins = [line.token for line in lines if line.what == "begin"]
    assert len(begins) == len(set(begins)), f"an attempt was started twice: {_turns(lines)}"


def check_undisturbed(lines: Sequence[Line]) -> None:
    """Asserts that one process did the whole run."""
    check_alone(lines)
    whats = [line.what for line in lines if line.what != "tick"]
    assert whats == ["begin", "end"] and len({line.pid for line in lines}) == 1, _turns(lines)


def _turns(lines: Sequence[Line]) -> Mapping[tuple[int, int], list[str]]:
    found: dict[tuple[int, int], list[str]] = defaultdict(list)
    for line in lines:
        found[line.token, line.pid].append(f"{line.what} {line.at:.2f}")
    return {key: [*texts[:2], "...", *texts[-2:]] for key, texts in found.items()}
