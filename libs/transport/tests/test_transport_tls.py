"""Certificate files: checked as a set, changed while serving."""

import asyncio
import shutil
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import metrics
from toban_proto.v1 import executor_pb2, executor_pb2_grpc, logs_pb2, logs_pb2_grpc
from toban_runtime.clock import SystemClock
from toban_stack import certs
from toban_testing.clock import FakeClock
from toban_transport.channel import ChannelPool
from toban_transport.client_calls import duplex, unary
from toban_transport.identity import dns_name, spiffe_ids
from toban_transport.server import build_server
from toban_transport.tls import TlsFiles
from toban_transport.tls_reload import CertificateWatch, certificate_check

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
    assert (files.problem, files.failures) == ("", 0), "perhaps the certificate comes in a moment"
    assert files.current() is first
    assert files.current() is first
    assert caplog.text.count("the last good ones stay") == 1
    assert "tls.key: is not the key of tls.crt" in files.problem and files.failures == 1
    shutil.copy(tls / "executor" / "tls.crt", folder / "tls.crt")
    second = files.current()
    assert second is not first and files.problem == ""
    (folder / "tls.crt").unlink()
    assert files.current() is second
    assert files.current() is second
    assert "tls.crt: cannot be read" in files.problem and files.failures == 2


def issued(tls: Path, folder: Path, *, now: datetime, service: str = "coordinator") -> None:
    """Puts a certificate that was issued at `now` (valid from an hour before, for a month) into the folder."""
    fresh = certs.issue(tls / "ca", service, folder.parent / "fresh", now=now)
    for name in ("tls.key", "tls.crt"):
        shutil.copy(fresh / name, folder / name)
    shutil.rmtree(fresh)


def test_an_expired_or_early_certificate_does_not_replace_a_good_one(folder: Path, tls: Path) -> None:
    clock = Hurrying()
    files, now = TlsFiles(folder, clock=clock), clock.wall()
    first = files.current()
    for at, words in ((now - certs.VALIDITY, "expired at"), (now + timedelta(days=2), "is not valid before")):
        issued(tls, folder, now=at)
        assert all(files.current() is first for _ in range(3))
        assert words in files.problem
    issued(tls, folder, now=now)
    assert files.current() is not first
    assert files.problem == ""


def test_an_expired_certificate_stops_the_start(folder: Path, tls: Path) -> None:
    issued(tls, folder, now=SystemClock().wall() - certs.VALIDITY)
    with pytest.raises(TobanError, match=r"tls\.crt: expired at .*; issue it again") as caught:
        TlsFiles(folder)
    assert caught.value.exit_code == 78


def test_a_start_in_the_middle_of_a_change_waits_for_its_end(folder: Path, tls: Path) -> None:
    shutil.copy(tls / "executor" / "tls.key", folder / "tls.key")
    late = threading.Timer(0.3, lambda: shutil.copy(tls / "executor" / "tls.crt", folder / "tls.crt"))
    late.start()
    assert spiffe_ids(TlsFiles(folder).current().certificate) == ("spiffe://toban.internal/executor",)
    late.join()


def test_health_and_metrics_tell_about_the_files(folder: Path, tls: Path) -> None:
    clock = Hurrying()
    files, now = TlsFiles(folder, clock=clock), clock.wall()
    watch = CertificateWatch(tls=files, clock=clock)
    assert certificate_check(files, now).status == "ok"
    ends = files.current().certificate.not_valid_after_utc
    assert sample("toban_tls_certificate_not_after_seconds") == ends.timestamp()
    assert certificate_check(files, ends - timedelta(days=13)).status == "warning"
    assert certificate_check(files, ends).status == "error"
    failures, reloads = sample("toban_tls_reload_failures_total"), sample("toban_tls_reloads_total")
    shutil.copy(tls / "executor" / "tls.key", folder / "tls.key")
    for _ in range(4):
        watch.look()
    check = certificate_check(files, now)
    assert check.status == "warning" and "is not the key of" in check.value["problem"]
    assert sample("toban_tls_reload_failures_total") == failures + 1
    issued(tls, folder, now=now + timedelta(minutes=30))
    watch.look()
    assert certificate_check(files, now).status == "ok"
    assert sample("toban_tls_reloads_total") == reloads + 1
    renewed = files.current().certificate.not_valid_after_utc
    assert sample("toban_tls_certificate_not_after_seconds") == renewed.timestamp() != ends.timestamp()


def test_the_end_of_the_authority_is_told_before_it_comes(tmp_path: Path) -> None:
    """A certificate that outlives its authority: only that one's end is near, then over."""
    clock = Hurrying()
    authority = certs.make_ca(tmp_path / "ca", now=clock.wall() - certs.VALIDITY + timedelta(days=20))
    folder = certs.issue(authority, "coordinator", tmp_path / "coordinator")
    files = TlsFiles(folder, clock=clock)
    CertificateWatch(tls=files, clock=clock)
    ends = files.current().authority.not_valid_after_utc
    assert ends < files.current().certificate.not_valid_after_utc
    assert sample("toban_tls_authority_not_after_seconds") == ends.timestamp()
    assert certificate_check(files, ends - timedelta(days=15)).status == "ok"
    for at, status, says in ((ends - timedelta(days=13), "warning", "expires soon"), (ends, "error", "expired")):
        check = certificate_check(files, at)
        assert (check.status, check.value["problem"]) == (status, f"the authority of ca.crt {says}")


def test_of_several_authorities_the_one_counts_that_issued_the_certificate(folder: Path, tmp_path: Path) -> None:
    soon = SystemClock().wall() - certs.VALIDITY + timedelta(days=40)
    ours = (folder / "ca.crt").read_bytes()
    theirs = (certs.make_ca(tmp_path / "other", now=soon) / "ca.crt").read_bytes()
    authority = TlsFiles(folder).current().authority
    for bundle in (ours + theirs, theirs + ours):
        (folder / "ca.crt").write_bytes(bundle)
        assert TlsFiles(folder).current().authority == authority


def sample(name: str) -> float:
    """A number of /metrics."""
    [line] = [line for line in metrics.exposition().decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


async def test_a_certificate_that_ends_while_in_use(tls: Path, tmp_path: Path) -> None:
    """Calls of an open connection are refused, and so is a new one, until there is a valid certificate, which is taken at once."""
    folder = Path(shutil.copytree(tls / "coordinator", tmp_path / "client"))
    certs.reissue(tls / "ca", "coordinator", folder, validity=timedelta(seconds=5))
    files = TlsFiles(folder)
    pool = ChannelPool(tls=files, trust_domain="toban.internal")

    class Worker(executor_pb2_grpc.WorkerServiceServicer):
        async def Ping(self, request: Any, context: Any) -> Any:
            return executor_pb2.PingResponse(incarnation="i1")

    async def serve(port: int) -> Any:
        server = build_server(tls=TlsFiles(tls / "executor"), trust_domain="toban.internal", clock=SystemClock())
        server.add(executor_pb2_grpc.add_WorkerServiceServicer_to_server, Worker())
        return server, await server.start("127.0.0.1", port)

    async def ping() -> None:
        await unary(pool.stub(executor_pb2_grpc.WorkerServiceStub, address, "executor").Ping, PING, timeout=60)

    server, port = await serve(0)
    address = f"127.0.0.1:{port}"
    await ping()
    left = files.current().certificate.not_valid_after_utc - SystemClock().wall()
    await asyncio.sleep(max(0.0, left.total_seconds()) + 1.1)
    assert certificate_check(files, SystemClock().wall()).status == "error"
    with pytest.raises(TobanError, match="certificate expired at") as caught:
        await ping()
    assert caught.value.code is ErrorCode.UNAUTHENTICATED
    await server.stop(0)
    server, _ = await serve(port)
    with pytest.raises(TobanError):
        await ping()
    issued(tls, folder, now=SystemClock().wall())
    await asyncio.sleep(0.15)
    await ping()
    await pool.close()
    await server.stop(0)


async def test_a_stream_goes_on_while_the_files_change_and_a_closed_one_is_an_error(tls: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tls / "executor", tmp_path / "client"))

    class Ingest(logs_pb2_grpc.LogIngestServicer):
        async def Append(self, request_iterator: Any, context: Any) -> Any:
            async for request in request_iterator:
                yield logs_pb2.AppendResponse(request_id=request.request_id)

    server = build_server(tls=TlsFiles(tls / "log-archiver"), trust_domain="toban.internal", clock=SystemClock())
    server.add(logs_pb2_grpc.add_LogIngestServicer_to_server, Ingest())
    address = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    pool = ChannelPool(tls=TlsFiles(folder, clock=Hurrying()), trust_domain="toban.internal")
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def requests() -> Any:
        while True:
            yield await queue.get()

    kept = pool.get(address, "log-archiver")
    answers = duplex(logs_pb2_grpc.LogIngestStub(kept).Append, requests(), timeout=30)
    for number in (1, 2):
        await queue.put(logs_pb2.AppendRequest(request_id=number))
        assert (await anext(answers)).request_id == number
        if number == 1:
            issued(tls, folder, now=SystemClock().wall(), service="executor")
            assert pool.get(address, "log-archiver") is not kept
    waiting = asyncio.ensure_future(anext(answers))
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(TobanError, match="the connection was closed during the call"):
        await waiting
    await server.stop(0)


@pytest.mark.seed(120)
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
    await unary(executor_pb2_grpc.WorkerServiceStub(kept).Ping, PING, timeout=60)
    # Another authority altogether: only a server and a client that both took the new files can talk.
    for name in ("tls.key", "tls.crt", "ca.crt"):
        shutil.copy(new / "executor" / name, server_folder / name)
        shutil.copy(new / "coordinator" / name, client_folder / name)
    fresh = pool.get(address, "executor")
    assert fresh is not kept
    assert pool.stub(executor_pb2_grpc.WorkerServiceStub, address, "executor") is not stub
    await unary(executor_pb2_grpc.WorkerServiceStub(fresh).Ping, PING, timeout=60)
    stale = ChannelPool(tls=TlsFiles(certs.make_all(tmp_path / "third") / "coordinator"), trust_domain="toban.internal")
    with pytest.raises(TobanError):
        await unary(executor_pb2_grpc.WorkerServiceStub(stale.get(address, "executor")).Ping, PING, timeout=60)
    await stale.close()
    await pool.close()
    await server.stop(0)
