"""Certificate files: checked as a set, changed while serving."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import TobanError
from toban_proto.v1 import executor_pb2, executor_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_testing.clock import FakeClock
from toban_transport.call import unary
from toban_transport.channel import ChannelPool
from toban_transport.identity import dns_name, spiffe_ids
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles

PING = executor_pb2.PingRequest()


class Hurrying(SystemClock):
    """Each look at this clock is a second later, so that no look at the files is skipped."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 1.0
        return self._seconds


@pytest.fixture
def folder(tls: Path, tmp_path: Path) -> Path:
    """A private copy of the coordinator's files."""
    return Path(shutil.copytree(tls / "coordinator", tmp_path / "coordinator"))


def test_a_good_folder_loads_and_stays_the_same_object(folder: Path) -> None:
    files = TlsFiles(folder)
    assert files.current() is files.current()
    assert spiffe_ids(files.current().certificate) == ("spiffe://toban.internal/coordinator",)
    assert dns_name("coordinator", "toban.internal") == "coordinator.toban.internal"


def test_the_files_are_not_looked_at_for_each_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    files = TlsFiles(folder, clock=clock)
    (folder / "tls.crt").unlink()
    monkeypatch.setattr(files, "_look", lambda: pytest.fail("looked too early"))
    assert files.current() is files.current()


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"])
def test_a_missing_or_broken_file_stops_the_start(folder: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(TobanError, match=name) as caught:
        TlsFiles(folder)
    assert caught.value.exit_code == 78
    assert "\n" not in caught.value.message


def test_a_key_of_another_certificate_stops_the_start(folder: Path, tls: Path) -> None:
    shutil.copy(tls / "executor" / "tls.key", folder / "tls.key")
    with pytest.raises(TobanError, match="is not the key of"):
        TlsFiles(folder)


def test_a_key_that_everybody_can_read_stops_the_start(folder: Path) -> None:
    (folder / "tls.key").chmod(0o644)
    with pytest.raises(TobanError, match="chmod o-r"):
        TlsFiles(folder)


def test_the_last_good_set_stays_while_a_rotation_is_half_done(
    folder: Path, tls: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = TlsFiles(folder, clock=Hurrying())
    first = files.current()
    shutil.copy(tls / "executor" / "tls.key", folder / "tls.key")
    assert files.current() is first
    assert files.current() is first
    assert caplog.text.count("the last good ones stay") == 1
    shutil.copy(tls / "executor" / "tls.crt", folder / "tls.crt")
    assert files.current() is not first
    (folder / "tls.crt").unlink()
    assert files.current() is files.current()


async def test_server_and_client_take_new_certificates_without_a_restart(tmp_path: Path) -> None:
    now = SystemClock().wall()
    old, new = tmp_path / "old", tmp_path / "new"
    certs.make_all(old)
    certs.make_all(new, now=now + timedelta(seconds=1))
    server_folder, client_folder = old / "executor", old / "coordinator"

    class Worker(executor_pb2_grpc.WorkerServiceServicer):
        async def Ping(self, request: Any, context: Any) -> Any:
            return executor_pb2.PingResponse(incarnation="i1")

    server = build_server(
        tls=TlsFiles(server_folder, clock=Hurrying()), trust_domain="toban.internal", clock=SystemClock()
    )
    server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, Worker())
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    pool = ChannelPool(tls=TlsFiles(client_folder, clock=Hurrying()), trust_domain="toban.internal")
    kept = pool.get(address, "executor")
    assert pool.get(address, "executor") is kept
    stub = pool.stub(executor_pb2_grpc.WorkerServiceStub, address, "executor")
    assert pool.stub(executor_pb2_grpc.WorkerServiceStub, address, "executor") is stub
    await unary(executor_pb2_grpc.WorkerServiceStub(kept).Ping, PING, timeout=10)
    # Another authority altogether: only a server and a client that both took the new files can talk.
    for name in ("tls.key", "tls.crt", "ca.crt"):
        shutil.copy(new / "executor" / name, server_folder / name)
        shutil.copy(new / "coordinator" / name, client_folder / name)
    fresh = pool.get(address, "executor")
    assert fresh is not kept
    assert pool.stub(executor_pb2_grpc.WorkerServiceStub, address, "executor") is not stub
    await unary(executor_pb2_grpc.WorkerServiceStub(fresh).Ping, PING, timeout=10)
    stale = ChannelPool(tls=TlsFiles(certs.make_all(tmp_path / "third") / "coordinator"), trust_domain="toban.internal")
    with pytest.raises(TobanError):
        await unary(executor_pb2_grpc.WorkerServiceStub(stale.get(address, "executor")).Ping, PING, timeout=10)
    await stale.close()
    await pool.close()
    await server.stop(0)
