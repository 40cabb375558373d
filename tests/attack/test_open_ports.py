"""A process of this machine without a credential, such as a job, at the ports of the stores of a stack."""

from __future__ import annotations

import http.client
from typing import Any

from toban_testing.listening import listening_ports

SECONDS = 10.0


def status(port: int, method: str, path: str) -> int:
    """0 when the port speaks no HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, path, "forged" if method == "PUT" else None)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_archived_output_needs_a_key_at_every_port(attacks: Any, stack: Any) -> None:
    found = sorted(listening_ports(stack.processes()["s3"].pid))
    assert len(found) > 1, "the object store has more ports than that of S3"
    for port in found:
        for folder in ("/buckets/toban-logs", "/toban-logs"):
            for method, path in (
                ("GET", f"{folder}/"),
                ("PUT", f"{folder}/forged.txt"),
                ("GET", f"{folder}/forged.txt"),
                ("DELETE", f"{folder}/forged.txt"),
                ("DELETE", f"{folder}/?recursive=true"),
            ):
                answer = status(port, method, path)
                attacks.expect(f"{method} {path} at port {port}", refused=not 200 <= answer < 400, instead=answer)
