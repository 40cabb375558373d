"""Notes while the executor does not keep up: what a later one replaces is left out, nothing else."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_domain.outcome import AttemptKey
from toban_executor.decide.guard_types import JobNote
from toban_executor.decide.warm import WarmNote
from toban_executor.guard.channel import Channel
from toban_executor.guard.protocol import decode_report, socket_pair

KEY = AttemptKey(7, 1)
CHECKPOINT = JobNote(key=KEY, kind="checkpoint", text="{}", number=1)
ZYGOTES = WarmNote(("a",), 3, {"idle": 1})


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket_pair()
    yield near, far
    near.close()
    far.close()


def test_checkpoints_and_counts_of_zygotes_are_always_sent(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    near, far = pair
    channel = Channel(near, spool_file=tmp_path / "spool")
    progress = JobNote(key=KEY, kind="progress", text='{"percentage":4}')
    channel.send_note(progress)
    while not channel.congested:
        channel.send(b"x" * 50_000)
    for note in (progress, progress._replace(kind="steps"), CHECKPOINT, ZYGOTES):
        channel.send_note(note)
    far.setblocking(False)
    found: list[object] = []
    while ZYGOTES not in found:
        data = far.recv(1 << 18)
        channel.flush()
        if data[:1] == b"J":
            found.append(decode_report(data))
    assert found == [progress, CHECKPOINT, ZYGOTES]
