"""Jobs that record their own execution, so that a test detects overlaps and losses independently of Toban.

Each attempt acquires a file lock named after its run, which the kernel releases only when every process of the attempt that
inherited it has ended. A second concurrent execution of the run cannot acquire the lock, records that, and ends with OVERLAP_EXIT.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OVERLAP_EXIT = 99
_MARK = '$TOBAN_RUN_ID $TOBAN_FENCE $$" >> "$RECORD/marks"'
_SECONDS = 'seconds=$(cat "$RECORD/seconds" 2>/dev/null || echo "$SECONDS_TO_RUN")'
_INNER = f'{_SECONDS}; echo "start {_MARK}; sleep "$seconds"; echo "end {_MARK}'
_OUTER = f"flock -n -E {OVERLAP_EXIT} \"$RECORD/run-$TOBAN_RUN_ID\" sh -c '{_INNER}'; s=$?; "
_SCRIPT = _OUTER + f'[ $s = {OVERLAP_EXIT} ] && echo "overlap {_MARK}; exit $s'


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of the record: what (start | end | overlap), the attempt, and the process."""

    what: str
    run_id: int
    token: int
    pid: int


def recorder_job(name: str, record: Path, *, seconds: float, **spec: Any) -> dict[str, Any]:
    """A job that records itself in the folder `record` and runs for `seconds`, or for what the file `seconds` in it contains at the start."""
    step = {"id": "main", "type": "command", "argv": ["sh", "-c", _SCRIPT]}
    env = {"RECORD": str(record), "SECONDS_TO_RUN": str(seconds)}
    body = {"steps": [step], "env": env, "allow_shell": True, **spec}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def interval_schedule(name: str, job: str, *, seconds: int) -> dict[str, Any]:
    """A schedule of `job` every `seconds`."""
    spec = {"job": job, "interval_seconds": seconds}
    return {"apiVersion": "toban/v1", "kind": "Schedule", "metadata": {"name": name}, "spec": spec}


def marks(record: Path) -> list[Mark]:
    """The whole record so far (lines are shorter than a pipe buffer, so appends never mix)."""
    file = record / "marks"
    if not file.exists():
        return []
    rows = (line.split() for line in file.read_text().splitlines())
    return [Mark(what, int(run), int(token), int(pid)) for what, run, token, pid in rows]


def by_run(record: Path) -> Mapping[int, list[Mark]]:
    """The marks of each run."""
    found: dict[int, list[Mark]] = defaultdict(list)
    for mark in marks(record):
        found[mark.run_id].append(mark)
    return found
