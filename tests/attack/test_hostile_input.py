"""Messages, manifests, payloads, expressions and files that are made to break, to hang or to reach out: each is refused, and the service goes on."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_proto.v1 import logs_pb2, logs_pb2_grpc
from toban_testing.admin_client import AdminClient
from toban_transport.authz import ADMIN_CLI, METHOD_RULES

SECONDS = 20.0
CPU_SECONDS = 5.0
"""Most that a coordinator may spend on one refusal; what hangs takes minutes."""
SERVED = {
    "WorkerService": "executor",
    "LogIngest": "log-archiver",
    "LogReader": "log-archiver",
    "LogArchive": "log-archiver",
    "Signer": "signer",
}
JUNK = b"\xff" * 64
MiB = 1 << 20
REFUSALS = tuple(
    code for code in ErrorCode if str(code) not in ("INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN")
)


def methods() -> Iterator[tuple[str, str, str]]:
    """Path, server, and a certificate that may call it, of each method."""
    folder = Path(import_module("toban_proto.v1").__path__[0])
    for file in sorted(folder.glob("*_pb2.py")):
        for service in import_module(f"toban_proto.v1.{file.stem}").DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                callers = METHOD_RULES[path]
                caller = ADMIN_CLI if ADMIN_CLI in callers else sorted(callers - {"admin-web"} or callers)[0]
                yield path, SERVED.get(service.name, "coordinator"), caller


def send(channel: grpc.Channel, path: str, data: bytes, **given: Any) -> list[bytes]:
    return list(channel.stream_stream(path)(iter([data]), timeout=SECONDS, **given))


def test_no_method_takes_bytes_that_are_no_request(attacks: Any, channel: Any) -> None:
    for path, server, caller in methods():
        attacks.call(path, partial(send, channel(server, caller), path, JUNK), *REFUSALS)


def test_no_server_takes_messages_without_a_bound(attacks: Any, channel: Any, servers: Any) -> None:
    """The client that a service uses bounds its own messages; an attacker's does not."""
    paths = {"coordinator": ("JobReader/ListJobs", "admin-cli"), "executor": ("WorkerService/Ping", "coordinator")}
    for server, (method, caller) in {**paths, "log-archiver": ("LogReader/Read", "admin-cli")}.items():
        path, opened, zeros = f"/toban_proto.v1.{method}", channel(server, caller), b"\x00" * (5 * MiB)
        for what, data, given in (
            ("5 MiB", zeros, {}),
            ("5 MiB in a few bytes", zeros, {"compression": grpc.Compression.Gzip}),
            ("100 kB of metadata", b"", {"metadata": (("x-padding", "x" * 100_000),)}),
        ):
            call = partial(send, opened, path, data, **given)
            attacks.call(
                f"{what} to {server}",
                call,
                ErrorCode.RESOURCE_EXHAUSTED,
                ErrorCode.INVALID_ARGUMENT,
                ErrorCode.UNAVAILABLE,
            )


@pytest.fixture
def canary() -> Iterator[tuple[str, list[object]]]:
    """An address that nothing may connect to, and who did."""
    seen: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, peer = listener.accept()
                except OSError:
                    return
                seen.append(peer)
                connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", seen
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": "hostile"},
        "spec": {"steps": [{"argv": ["true"]}], **spec},
    }


def schedule(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "toban/v1",
        "kind": "Schedule",
        "metadata": {"name": "hostile"},
        "spec": {"job": "plain", **spec},
    }


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def pattern(text: str) -> dict[str, Any]:
    return job(payload_schema={"type": "object", "properties": {"a": {"type": "string", "pattern": text}}})


DOCUMENTS: dict[str, dict[str, Any]] = {
    "a name with a path": {**job(), "metadata": {"name": "../../etc/passwd"}},
    "a name with markup": {**job(), "metadata": {"name": "<script>alert(1)</script>"}},
    "a name with NUL": {**job(), "metadata": {"name": "a\0b"}},
    "a name of 100 kB": {**job(), "metadata": {"name": "a" * 100_000}},
    "SQL as a name": {**job(), "metadata": {"name": "a'; DROP TABLE jobs; --"}},
    "NUL in argv": job(steps=[{"argv": ["true", "a\0b"]}]),
    "half a character in argv": job(steps=[{"argv": ["true", "\ud800"]}]),
    "a shell that is not allowed": job(steps=[{"argv": ["sh", "-c", "id"]}]),
    "no program": job(steps=[{"argv": []}]),
    "20,000 steps": job(steps=[{"argv": ["true"]}] * 20_000),
    "an unknown key": job(run_as="root"),
    "an environment with '='": job(env={"A=B": "x"}),
    "a payload of 400 levels": job(default_payload={"a": nested(400)}),
    "a number of 5,000 digits": job(timeout_seconds=int("9" * 4000)),
    "a negative time": job(timeout_seconds=-1),
    "an expression with a back-reference": pattern(r"(?=(a+))\1+b"),
    "an expression that looks ahead": pattern(r"(?!a)b"),
    "an expression that is none": pattern("(("),
    "a schedule of the year 1": schedule(interval_seconds=86_400, start="0001-01-01T00:00:00Z"),
    "a schedule of the year 9999": schedule(interval_seconds=86_400, start="9999-12-31T23:59:59Z"),
    "a cron of 9 fields": schedule(cron="* * * * * * * * *"),
    "a cron with a command": schedule(cron="* * * * * ; id"),
    "a cron of 100 kB": schedule(cron="1," * 50_000 + "1 * * * *"),
    "a cron with a step of nothing": schedule(cron="*/0 * * * *"),
    "a zone with a path": schedule(cron="0 0 * * *", timezone="../../../etc/passwd"),
    "an interval of nothing": schedule(interval_seconds=0),
}


def cpu(stack: Any) -> float:
    """CPU seconds of the coordinator so far."""
    [pid] = [one.pid for one in stack.processes().values() if one.role == "coordinator"]
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_hostile_manifest_is_refused(attacks: Any, admin: AdminClient, stack: Any, kind: str) -> None:
    admin.apply({**job(), "metadata": {"name": "plain"}})
    before = cpu(stack)
    attacks.call(kind, lambda: admin.apply(DOCUMENTS[kind], timeout=100), *REFUSALS)
    attacks.expect(f"CPU time for {kind}", refused=cpu(stack) - before < CPU_SECONDS)


def test_a_schema_fetches_nothing(attacks: Any, admin: AdminClient, canary: tuple[str, list[object]]) -> None:
    address, seen = canary
    for url in (f"http://{address}/s.json", f"https://{address}/s", "file:///etc/passwd", f"//{address}/s", "s.json"):
        for schema in ({"$ref": url}, {"type": "object", "properties": {"a": {"$ref": url}}}):
            attacks.call(f"{schema}", lambda s=schema: admin.apply(job(payload_schema=s)), *REFUSALS)
        # Which dialect a schema names is no order to fetch it, so it may be stored.
        with contextlib.suppress(TobanError):
            admin.apply(job(payload_schema={"$schema": url}))
    attacks.expect("a connection", refused=not seen, instead=seen)


def test_a_hostile_payload_is_refused(attacks: Any, admin: AdminClient, stack: Any) -> None:
    """Also by a schema whose expression would take for ever in an engine that backtracks."""
    admin.apply({**pattern("^(a+)+$"), "metadata": {"name": "matched"}})
    before = cpu(stack)
    for what, payload in {
        "a text that makes it backtrack": json.dumps({"a": "a" * 30_000 + "!"}),
        "no JSON": "{",
        "no object": "[1]",
        "NaN": '{"a": NaN}',
        "2,000 levels": '{"a":' + "[" * 2000 + "]" * 2000 + "}",
        "300 kB": json.dumps({"a": "x" * 300_000}),
        "NUL": '{"b": "\\u0000"}',
        "half a character": '{"b": "\\ud800"}',
        "5,000 digits": '{"b": ' + "9" * 5000 + "}",
    }.items():
        request = pb.StartRunsRequest(runs=[pb.StartRunRequest(job="matched", payload_json=payload)])
        attacks.call(what, lambda r=request: admin.call(rpc.JobControlStub, "StartRuns", r), *REFUSALS)
    attacks.expect("CPU time", refused=cpu(stack) - before < CPU_SECONDS)


def test_a_hostile_search_is_refused(attacks: Any, admin: AdminClient, channel: Any) -> None:
    admin.apply({**job(), "metadata": {"name": "plain"}})
    [run] = admin.start("plain")
    admin.until_ended(run)
    ticket = admin.read_ticket(run)
    stub = logs_pb2_grpc.LogReaderStub(channel("log-archiver", "admin-cli"))
    for text in (r"(a)\1", "(?=a)", "(?<!a)b", "((a{1000}){1000}){1000}", "((", "a" * 1_000_000):
        request = logs_pb2.SearchLogRequest(run_ids=[run], grep=text, regex=True, ticket=ticket)
        attacks.call(f"search {text[:30]}", lambda r=request: list(stub.Search(r, timeout=SECONDS)), *REFUSALS)


BOMB = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 30))
HEAD = "apiVersion: toban/v1\nkind: Job\nmetadata: {name: y}\nspec: {steps: [{argv: [/bin/true]}]}\n"
FILES = {
    "aliases of aliases": f"{HEAD}x0: &x0 [a]\n{BOMB}",
    "an object of Python": f"{HEAD}x: !!python/object/apply:os.system [id]\n",
    "20,000 levels": f"{HEAD}x: {'[' * 20_000}{']' * 20_000}\n",
    "a value in itself": f"{HEAD}x: &x [*x]\n",
    "a key twice": f"{HEAD}kind: Schedule\n",
    "an anchor that is none": f"{HEAD}x: *nothing\n",
    "no text": "\x00\x01\xff",
    "20 MB": f"{HEAD}# {'x' * 20_000_000}\nx: 1\n",
}


@pytest.mark.parametrize("kind", FILES)
def test_a_hostile_file_is_refused(attacks: Any, stack: Any, tmp_path: Path, kind: str) -> None:
    """Within 30 s of CPU time and 2 GB of memory, and in words."""
    file = tmp_path / "hostile.yaml"
    file.write_bytes(FILES[kind].encode("latin-1"))
    limits = ["prlimit", "--cpu=30", f"--as={2 << 30}"]
    done = subprocess.run(
        [*limits, sys.executable, "-m", "toban_cli", "validate", str(file)], capture_output=True, text=True, check=False
    )
    refused = 0 < done.returncode < 128 and "Traceback" not in done.stderr and bool(done.stderr.strip())
    attacks.expect(kind, refused=refused, instead=(done.returncode, done.stdout[-200:], done.stderr[-300:]))
