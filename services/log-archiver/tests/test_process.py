"""The service as a process: configuration, readiness without PostgreSQL, orderly end; and the check of the bucket."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from toban_log_archiver.adapters.object_store import S3Bucket
from toban_stack.wait import wait_until
from toban_testing.admin_port import ask, token_file
from toban_testing.proxy import FaultProxy

PROGRAM = (sys.executable, "-m", "toban_log_archiver")


def environment(**given: object) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDULER_")}
    return kept | {f"SCHEDULER_{name.upper()}": str(value) for name, value in given.items()}


def start(**given: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(PROGRAM, env=environment(**given), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ports(ready: Path, process: subprocess.Popen[bytes]) -> dict[str, int]:
    assert wait_until(lambda: ready.exists() or process.poll() is not None, 30)
    return dict(json.loads(ready.read_text()))


def end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    return out, err


def get(port: int, path: str) -> tuple[int, str]:
    return ask(f"127.0.0.1:{port}", path)


def test_starts_serves_and_ends_in_order(log_archiver_url: str, tls: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    process = start(
        database_url=log_archiver_url,
        tls_dir=tls / "log-archiver",
        ready_file=ready,
        admin_token_file=token_file(tmp_path),
        log_format="json",
    )
    found = ports(ready, process)
    assert wait_until(lambda: get(found["admin_port"], "/readyz")[0] == 200, 60)
    out, err = end(process)
    assert err == b""
    assert all(json.loads(line)["service"] == "log-archiver" for line in out.splitlines())


def test_without_postgresql_it_lives_and_is_not_ready(tls: Path, tmp_path: Path, free_port: int) -> None:
    ready = tmp_path / "ready.json"
    absent = f"postgresql://x@127.0.0.1:{free_port}/x"
    process = start(
        database_url=absent, tls_dir=tls / "log-archiver", ready_file=ready, admin_token_file=token_file(tmp_path)
    )
    found = ports(ready, process)
    assert get(found["admin_port"], "/livez")[0] == 200
    assert get(found["admin_port"], "/readyz")[0] == 503
    end(process)


def test_an_unmigrated_database_is_not_ready(pg_empty_url: str, tls: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    process = start(
        database_url=pg_empty_url, tls_dir=tls / "log-archiver", ready_file=ready, admin_token_file=token_file(tmp_path)
    )
    found = ports(ready, process)
    assert wait_until(lambda: "schema logs is missing" in get(found["admin_port"], "/healthz")[1], 60)
    assert get(found["admin_port"], "/readyz")[0] == 503
    end(process)


async def test_sessions_that_hang_are_replaced_and_hold_up_no_end(pg_url: str, tls: Path, tmp_path: Path) -> None:
    ready, server = tmp_path / "ready.json", conninfo_to_dict(pg_url)
    async with FaultProxy(host=str(server["host"]), port=int(server["port"] or 0)) as proxy:
        through = f"postgresql://{server['user']}:{server['password']}@{proxy.address}/{server['dbname']}"
        process = start(
            database_url=through, tls_dir=tls / "log-archiver", ready_file=ready, admin_token_file=token_file(tmp_path)
        )
        try:
            admin = (await asyncio.to_thread(ports, ready, process))["admin_port"]

            def serves() -> bool:
                return get(admin, "/readyz")[0] == 200

            def has_closed_one() -> bool:
                lines = get(admin, "/metrics")[1].splitlines()
                counts = [line for line in lines if line.startswith("toban_pool_sessions_hung_total{")]
                return any(not line.endswith(" 0.0") for line in counts)

            assert await asyncio.to_thread(wait_until, serves, 10)
            proxy.swallow()
            # The probe asks each second; nothing bounded its wait before.
            assert await asyncio.to_thread(wait_until, has_closed_one, 20)
            assert await asyncio.to_thread(wait_until, serves, 20)
            proxy.swallow()
            await asyncio.to_thread(end, process)
        finally:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"database_url": ""}, b"SCHEDULER_DATABASE_URL: not set"),
        ({"databse_url": "x"}, b"did you mean SCHEDULER_DATABASE_URL?"),
        ({"tls_dir": "/nowhere"}, b"SCHEDULER_TLS_DIR"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_78(tls: Path, wrong: dict[str, str], words: bytes) -> None:
    given = {"database_url": "postgresql://x@127.0.0.1:1/x", "tls_dir": tls / "log-archiver"} | wrong
    process = start(**given)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 78
    assert words in err
    assert err.count(b"\n") == 1


def bucket(s3: Any, **other: str) -> S3Bucket:
    given = {
        "endpoint_url": s3.s3_endpoint_url,
        "bucket": s3.s3_bucket,
        "access_key": s3.s3_access_key,
        "secret_key": s3.s3_secret_key,
        "region": s3.s3_region,
    }
    return S3Bucket(**(given | other))


async def test_the_bucket_is_found_or_made_on_a_local_stack(s3: Any) -> None:
    assert await bucket(s3).problem() == ""
    assert await bucket(s3, bucket="made-when-missing").problem() == ""
    assert await bucket(s3, bucket="made-when-missing").problem() == ""


async def test_a_bucket_that_cannot_be_used_is_a_line_of_text(s3: Any, free_port: int) -> None:
    assert "refuses our key" in await bucket(s3, secret_key="wrong").problem()
    assert "does not answer" in await bucket(s3, endpoint_url=f"http://127.0.0.1:{free_port}").problem()
