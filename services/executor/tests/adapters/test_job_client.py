"""The job's end of TOBAN_SOCKET in the executor's own programs."""

import json
import socket
import threading
from pathlib import Path

from toban_executor.adapters.job_client import JobClient
from toban_executor.guard.clock import boottime, pause


def test_a_lease_counts_from_the_question(tmp_path: Path) -> None:
    """The response may wait for a guard, or a program, that has no turn."""
    looked: list[float] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "job"))
        listener.listen()

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                looked.append(boottime())
                pause(0.3)
                peer.sendall(json.dumps({"ok": True, "lease_seconds": 9.0, "cancelled": False}).encode() + b"\n")

        guard = threading.Thread(target=answer)
        guard.start()
        asked = boottime()
        client = JobClient(str(tmp_path / "job"))
        lease = client.lease()
        guard.join()
        assert client._socket is not None
        client._socket.close()
    assert lease.until is not None
    assert asked + 9 <= lease.until <= looked[0] + 9
    assert not lease.is_over(lease.until - 1) and lease.is_over(lease.until)
