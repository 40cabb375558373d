"""Jobs with output that is determined by run and token, and a check of their stored logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

STDOUT, STDERR, SYSTEM = 1, 2, 3
_MASK = (1 << 31) - 1
# Uses the shell's arithmetic and printf: only the pauses start another process.
_SCRIPT = """
x=$(( (TOBAN_RUN_ID * 1000003 + TOBAN_FENCE % 1000003 * 7919) & 2147483647 ))
n=$(( 4 + x % 13 )); i=0; nap=0
[ $(( x % 16 )) -eq 0 ] && nap=0.2; [ $(( x % 200 )) -eq 1 ] && nap=2
while [ $i -lt $n ]; do
  i=$(( i + 1 )); x=$(( (x * 1103515245 + 12345) & 2147483647 ))
  [ $i -eq 3 ] && [ $nap != 0 ] && sleep $nap
  to=1; [ $(( (x >> 8) % 4 )) -eq 0 ] && to=2
  printf '%d %d %d %d %0*d\\n' $TOBAN_RUN_ID $TOBAN_FENCE $i $x $(( 1 + (x >> 16) % 100 )) 0 >&$to
done
"""


def printing_job(name: str, **spec: Any) -> dict[str, Any]:
    """A job that prints `lines_of` its run and token; one in 16 pauses between lines, one in 200 for two seconds."""
    step = {"id": "main", "type": "command", "argv": ["sh", "-c", _SCRIPT]}
    body = {"steps": [step], "allow_shell": True, **spec}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def lines_of(run_id: int, token: int) -> list[tuple[int, bytes]]:
    """(stream, text) of each line that an attempt prints, in order."""
    x = (run_id * 1000003 + token % 1000003 * 7919) & _MASK
    lines = []
    for number in range(1, 5 + x % 13):
        x = (x * 1103515245 + 12345) & _MASK
        stream = STDERR if (x >> 8) % 4 == 0 else STDOUT
        text = f"{run_id} {token} {number} {x} {'0' * (1 + (x >> 16) % 100)}"
        lines.append((stream, text.encode()))
    return lines


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A chunk that a log-archiver acknowledged: `lines` lines of one stream, with the numbers of the first and the last."""

    run_id: int
    token: int
    stream: int
    seq_from: int
    seq_to: int
    lines: int


class AcknowledgedFile:
    """Follows a file with a line of six numbers per acknowledged chunk. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.by_run: dict[int, set[Acknowledged]] = defaultdict(set)

    def read(self) -> None:
        """Reads the new lines."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, _, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            one = Acknowledged(*map(int, line.split()))
            self.by_run[one.run_id].add(one)


@dataclass(slots=True)
class ReadAttempt:
    """The lines of one attempt that a reader received: (stream, seq, text) in order."""

    lines: list[tuple[int, int, bytes]] = field(default_factory=list)

    @property
    def last_seq(self) -> int:
        """Number of the last line; 0 when there is none."""
        return self.lines[-1][1] if self.lines else 0


def check_run(run_id: int, read: Mapping[int, ReadAttempt], acknowledged: Collection[Acknowledged]) -> None:
    """Asserts that each acknowledged line is stored once, each stored line was printed, and no stream has a gap."""
    for token, attempt in read.items():
        _check_attempt(run_id, token, attempt.lines)
    for one in acknowledged:
        lines = read[one.token].lines if one.token in read else []
        found = sum(stream == one.stream and one.seq_from <= seq <= one.seq_to for stream, seq, _ in lines)
        assert found == one.lines, f"{found} lines are stored of {one}"


def is_whole(run_id: int, token: int, attempt: ReadAttempt) -> bool:
    """Whether the complete output of an undisturbed attempt is stored."""
    return len(attempt.lines) == len(lines_of(run_id, token))


def _check_attempt(run_id: int, token: int, lines: Sequence[tuple[int, int, bytes]]) -> None:
    numbers = [seq for _, seq, _ in lines]
    assert all(a < b for a, b in pairwise(numbers)), f"not once and in order: {run_id} {numbers}"
    printed = lines_of(run_id, token)
    for stream in (STDOUT, STDERR):
        wanted = _texts(printed, stream)
        got = [text for its, _, text in lines if its == stream]
        assert got == wanted[: len(got)], (
            f"run {run_id}, token {token}, stream {stream}: {got} is not a prefix of {wanted}"
        )
    system = [text for stream, _, text in lines if stream == SYSTEM]
    assert not system, f"run {run_id}, token {token}: {system}"


def _texts(lines: Iterable[tuple[int, bytes]], stream: int) -> list[bytes]:
    return [text for its, text in lines if its == stream]
