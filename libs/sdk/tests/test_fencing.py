"""Guards on a real PostgreSQL, a server behind HTTP and S3: an older attempt is refused, also one that is under way."""

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
import sqlalchemy
from botocore.exceptions import ClientError

from toban.fencing import (
    FencedOutError,
    S3Guard,
    SqlGuard,
    check_status,
    current_fence,
    fence_of,
    http_headers,
    parse_fence,
)
from toban.transactions import OutsideTransactionError
from toban_stack.servers.endpoints import Endpoints

EXAMPLES = Path(__file__).parents[3] / "examples" / "fencing"
OLDER, NEWER = 2251800082120705, 2251800082120706
SECONDS = 30.0


def run_job(fence: int, name: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """A program of examples/fencing as an attempt with this token: exit code, and its last line."""
    given = {**os.environ, **environment, "TOBAN_FENCE": str(fence)}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()[-1]


@pytest.fixture
def database(pg_empty_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(pg_empty_url, autocommit=True) as connection:
        connection.execute(SqlGuard().ddl)
        connection.execute("CREATE TABLE payouts (account text, amount int, fence bigint)")
        yield connection


def test_an_older_attempt_books_nothing(database: psycopg.Connection[Any], pg_empty_url: str) -> None:
    def book(fence: int) -> tuple[int, str]:
        return run_job(fence, "sql_payout.py", "ada", "100", DATABASE_URL=pg_empty_url)

    assert book(NEWER) == (0, "booked 100 for ada")
    code, line = book(OLDER)
    assert code == 1 and f"a newer attempt of token {NEWER} has been there" in line
    assert book(NEWER)[0] == 0, "the same attempt may write again"
    assert database.execute("SELECT amount, fence FROM payouts").fetchall() == [(100, NEWER)] * 2


def test_a_newer_attempt_waits_for_an_older_one_that_has_entered(
    database: psycopg.Connection[Any], pg_empty_url: str
) -> None:
    """What the older one writes is committed before the newer one begins, so that the newer one sees it."""
    guard, entered = SqlGuard(), threading.Event()
    seen: list[Any] = []

    def newer() -> None:
        with psycopg.connect(pg_empty_url) as connection:
            guard.enter(connection, "r", NEWER)
            entered.set()
            seen.extend(connection.execute("SELECT amount FROM payouts").fetchall())

    with psycopg.connect(pg_empty_url) as connection:
        guard.enter(connection, "r", OLDER)
        thread = threading.Thread(target=newer)
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while database.execute(waiting).fetchall() != [(1,)]:
            assert thread.is_alive()
        assert not entered.is_set()
        connection.execute("INSERT INTO payouts VALUES ('ada', 1, %s)", (OLDER,))
    thread.join(SECONDS)
    assert seen == [(1,)]
    with psycopg.connect(pg_empty_url) as connection, pytest.raises(FencedOutError):
        guard.enter(connection, "r", OLDER)


def test_resources_and_tables_are_apart(database: psycopg.Connection[Any], pg_empty_url: str) -> None:
    database.execute("CREATE SCHEMA app")
    other = SqlGuard("app.fences")
    database.execute(other.ddl)
    with psycopg.connect(pg_empty_url) as connection:
        SqlGuard().enter(connection, "a", NEWER)
        SqlGuard().enter(connection, "b", OLDER)
        other.enter(connection, "a", OLDER)
    with pytest.raises(ValueError, match="no name of a table"):
        SqlGuard("a; DROP TABLE b")


def test_a_guard_in_sqlalchemy_and_without_a_transaction(database: psycopg.Connection[Any], pg_empty_url: str) -> None:
    with pytest.raises(OutsideTransactionError):
        SqlGuard().enter(database, "a", NEWER)
    engine = sqlalchemy.create_engine(pg_empty_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        SqlGuard().enter(connection, "a", NEWER)
    with engine.begin() as connection, pytest.raises(FencedOutError) as caught:
        SqlGuard().enter(connection, "a", OLDER)
    engine.dispose()
    assert (caught.value.resource, caught.value.fence, caught.value.seen) == ("a", OLDER, NEWER)


def test_an_older_attempt_is_refused_over_http(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "http_server.py"), str(tmp_path / "documents.sqlite")]
    for texts in (("first", "too late"), ("after a restart", "still too late")):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}/report"
            try:
                assert run_job(NEWER, "http_publish.py", url, texts[0]) == (0, f"published {texts[0]!r}")
                code, line = run_job(OLDER, "http_publish.py", url, texts[1])
                assert code == 1 and f"a newer attempt of token {NEWER} has been there" in line
            finally:
                server.terminate()


def test_headers_and_statuses() -> None:
    assert fence_of(http_headers(NEWER)) == NEWER
    for headers in (None, {}, {"Toban-Fence": "?"}):
        with pytest.raises(FencedOutError) as caught:
            check_status("r", 412, OLDER, headers)
        assert caught.value.seen == 0
    check_status("r", 200, OLDER, http_headers(NEWER))
    with pytest.raises(FencedOutError):
        check_status("r", 412, OLDER, {"toban-fence": str(NEWER)})
    for wrong in ("", "0", "-1", "1.5", "²", str(2**63), "9" * 5000):
        with pytest.raises(ValueError, match="no fencing token"):
            parse_fence(wrong)
    with pytest.raises(LookupError, match="does not run this program"):
        current_fence({})


@pytest.fixture
def bucket(s3: Endpoints) -> Iterator[Any]:
    """A client, and the name of a bucket of the test."""
    client = boto3.client(
        "s3",
        endpoint_url=s3.s3_endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=s3.s3_access_key,
        aws_secret_access_key=s3.s3_secret_key,
    )
    name = f"fencing-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=name)
    yield client, name
    client.close()


def test_an_older_attempt_replaces_nothing_in_s3(s3: Endpoints, bucket: Any, tmp_path: Path) -> None:
    client, name = bucket
    key = f"{tmp_path.name}/report"
    environment = {
        "S3_ENDPOINT_URL": str(s3.s3_endpoint_url),
        "AWS_ACCESS_KEY_ID": str(s3.s3_access_key),
        "AWS_SECRET_ACCESS_KEY": str(s3.s3_secret_key),
    }
    assert run_job(OLDER, "s3_report.py", name, key, "first", **environment) == (0, "wrote 'first'")
    assert run_job(NEWER, "s3_report.py", name, key, "second", **environment)[0] == 0
    code, line = run_job(OLDER, "s3_report.py", name, key, "too late", **environment)
    assert code == 1 and f"a newer attempt of token {NEWER} has been there" in line
    assert S3Guard(client, name).read(key) == b"second"
    stored = client.get_object(Bucket=name, Key=key)["Body"].read()
    assert stored == b"toban-fence %019d\nsecond" % NEWER


def test_an_older_attempt_that_has_compared_does_not_overwrite(bucket: Any, tmp_path: Path) -> None:
    """The newer attempt writes between the older one's comparison and its write."""
    client, name = bucket
    guard, key = S3Guard(client, name), f"{tmp_path.name}/counter"
    guard.put(key, b"0", OLDER)
    calls: list[bytes | None] = []

    def change(before: bytes | None) -> bytes:
        calls.append(before)
        S3Guard(client, name).put(key, b"newer", NEWER)
        return b"older"

    with pytest.raises(FencedOutError) as caught:
        guard.update(key, change, OLDER)
    assert calls == [b"0"] and caught.value.seen == NEWER
    assert guard.read(key) == b"newer"


def test_equal_content_of_a_newer_attempt_is_not_overwritten(bucket: Any, tmp_path: Path) -> None:
    """An ETag that is a hash of the content alone would be that of the older attempt."""
    client, name = bucket
    guard, key = S3Guard(client, name), f"{tmp_path.name}/state"
    guard.put(key, b"same", OLDER)

    def change(_: bytes | None) -> bytes:
        S3Guard(client, name).put(key, b"same", NEWER)
        return b"older"

    with pytest.raises(FencedOutError) as caught:
        guard.update(key, change, OLDER)
    assert caught.value.seen == NEWER and guard.read(key) == b"same"


def test_an_object_from_before_the_guard_is_taken_over(bucket: Any, tmp_path: Path) -> None:
    client, name = bucket
    guard, key = S3Guard(client, name), f"{tmp_path.name}/old"
    assert guard.read(key) is None
    client.put_object(Bucket=name, Key=key, Body=b"plain")
    assert guard.read(key) == b"plain"
    guard.update(key, lambda before: (before or b"") + b" more", OLDER)
    assert guard.read(key) == b"plain more"
    guard.put(key, b"", NEWER)
    assert guard.read(key) == b""
    with pytest.raises(ValueError, match="no fencing token"):
        guard.put(key, b"", 0)


def test_writers_of_one_attempt_lose_no_change(bucket: Any, tmp_path: Path) -> None:
    client, name = bucket
    guard, key = S3Guard(client, name, tries=100), f"{tmp_path.name}/lines"

    def add(number: int) -> None:
        guard.update(key, lambda before: (before or b"") + b"%d\n" % number, NEWER)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    found = guard.read(key)
    assert found is not None and sorted(map(int, found.split())) == [0, 1, 2, 3, 4]


def test_an_endless_contest_and_other_errors_are_named(bucket: Any, tmp_path: Path) -> None:
    client, name = bucket
    key = f"{tmp_path.name}/contested"

    def change(_: bytes | None) -> bytes:
        client.put_object(Bucket=name, Key=key, Body=os.urandom(8))
        return b"mine"

    with pytest.raises(TimeoutError, match="changed by others 3 times"):
        S3Guard(client, name, tries=3).update(key, change, NEWER)
    with pytest.raises(ClientError):
        S3Guard(client, "no-such-bucket").put(key, b"", NEWER)
