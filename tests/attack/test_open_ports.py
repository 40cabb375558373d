"""A process of this machine without a credential, such as a job, at the ports of the stores of a stack."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

import grpc
import pytest

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
                ("GET", "/dir/assign"),
                ("GET", "/col/delete?collection=toban-logs"),
                ("PUT", "/1,0100000000"),
            ):
                answer = status(port, method, path)
                attacks.expect(f"{method} {path} at port {port}", refused=not 200 <= answer < 400, instead=answer)


def answers_grpc(port: int, credentials: grpc.ChannelCredentials | None) -> bool:
    """Whether a server hears a call at `port`, whatever it answers."""
    target = f"127.0.0.1:{port}"
    options = [("grpc.ssl_target_name_override", "s3.toban.internal")]
    channel = grpc.secure_channel(target, credentials, options) if credentials else grpc.insecure_channel(target)
    with channel:
        call = channel.unary_unary("/no.such.Service/Method")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=SECONDS)
    return caught.value.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def test_parts_of_the_object_store_hear_only_each_other(attacks: Any, stack: Any) -> None:
    own, executor = stack.home.secrets / "s3-tls", stack.home.tls / "executor"

    def pem(path: Path) -> bytes:
        return path.read_bytes()

    authority = pem(own / "ca.crt")
    strangers = {
        "nothing": None,
        "no certificate": grpc.ssl_channel_credentials(authority),
        "an executor's certificate": grpc.ssl_channel_credentials(
            authority, pem(executor / "tls.key"), pem(executor / "tls.crt")
        ),
    }
    part = grpc.ssl_channel_credentials(authority, pem(own / "tls.key"), pem(own / "tls.crt"))
    found = [port for port in listening_ports(stack.processes()["s3"].pid) if answers_grpc(port, part)]
    assert len(found) >= 4, "master, volume server, file server and S3 have a port for gRPC each"
    for port in found:
        for name, credentials in strangers.items():
            attacks.expect(f"gRPC with {name} at port {port}", refused=not answers_grpc(port, credentials))
