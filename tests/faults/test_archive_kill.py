"""kill -9 of a real log-archiver between any two steps of the archive: both copies of a line or one, never none, and read once (I11)."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import boto3
import psycopg
import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_log_archiver.store import chunks, log_attempts, partitions
from toban_log_archiver.store.log_attempts import TokenNote
from toban_proto.v1.logs_pb2 import LogLine
from toban_stack.certs import TRUST_DOMAIN
from toban_stack.servers import Endpoints
from toban_stack.wait import wait_until
from toban_store.pool import open_pool
from toban_store.tx import autocommit, tx
from toban_testing.log_readers import LogReaders
from toban_testing.memory_chunk_source import new_chunk
from toban_testing.servers import SessionServers

INCARNATION = "11111111-2222-4333-8444-555555555555"
NANOS = 1_800_000_000_000_000_000
TOKEN = 10
RUNS, LINES, CHUNK = 8, 40, 10
# Right before each of these, in the order of a pass; then what the pass after a kill does: it looks at what was begun.
STEPS = (
    "taken", "read", "plan", "put", "stored", "read_back", "manifest", "commit", "committed", "drop", "drop_commit", "dropped",
)  # fmt: skip
CASES = [(step,) for step in STEPS]
CASES += [("read_back", step) for step in ("look", "stored", "manifest", "commit", "committed")] + [("put", "forget")]
TAKE_OVER = "UPDATE logs.archive_lease SET beat_at = beat_at - interval '1 minute'"


def text(run_id: int, seq: int) -> bytes:
    """The line that must be there: computable from its place."""
    return b"run %d line %d " % (run_id, seq) + b"x" * (seq % 7)


def wanted(run_id: int) -> list[tuple[int, int, bytes]]:
    return [(seq % 2 + 1, seq, text(run_id, seq)) for seq in range(1, LINES + 1)]


async def store(url: str, day: date, runs: range) -> None:
    """Sealed attempts of that day, as an ingest stores them."""
    pool = await open_pool(url, application_name="test", min_size=1, max_size=2)
    lines = partial(LogLine, at_unix_nanos=NANOS)
    try:
        async with autocommit(pool) as t:
            await partitions.ensure(t, first=day, last=day)
        for run_id in runs:
            new = []
            for stream in (1, 2):
                seqs = [seq for its, seq, _ in wanted(run_id) if its == stream]
                for at in range(0, len(seqs), CHUNK):
                    mine = [lines(seq=seq, stream=stream, text=text(run_id, seq)) for seq in seqs[at : at + CHUNK]]  # type: ignore[arg-type]
                    new.append(new_chunk(run_id, TOKEN, mine, log_day=day))
            note = TokenNote(log_day=day, run_id=run_id, token=TOKEN, incarnation=INCARNATION, last_seq=LINES)
            async with tx(pool) as t:
                await log_attempts.note(t, [note])
                await chunks.append(t, new)
    finally:
        await pool.close()


@dataclass
class Place:
    """A database, a bucket, and log-archivers as processes over both. They know no coordinator: a pass is made when a test asks for one."""

    url: str
    bucket: str
    s3: Endpoints
    tls: Path
    folder: Path
    days: int = 20
    runs: int = 0

    def fill(self, count: int = RUNS) -> tuple[date, range]:
        """Runs of an old day that no other test has."""
        self.days += 1
        first, self.runs = self.runs + 1, self.runs + count
        day = datetime.now(UTC).date() - timedelta(days=self.days)  # noqa: TID251
        runs = range(first, self.runs + 1)
        asyncio.run(store(self.url, day, runs))
        return day, runs

    @contextmanager
    def archiver(
        self, module: str = "toban_log_archiver", **given: str
    ) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
        """A process and its address; killed at the end."""
        ready = self.folder / f"{token_hex(8)}.json"
        settings = {
            "DATABASE_URL": self.url,
            "TLS_DIR": str(self.tls / "log-archiver"),
            "TRUST_DOMAIN": TRUST_DOMAIN,
            "S3_BUCKET": self.bucket,
            "S3_ENDPOINT_URL": self.s3.s3_endpoint_url,
            "S3_REGION": self.s3.s3_region,
            "S3_ACCESS_KEY": self.s3.s3_access_key,
            "S3_SECRET_KEY": self.s3.s3_secret_key,
            "READY_FILE": str(ready),
            "LOG_LEVEL": "error",
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDULER_")}
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        environment = {
            **kept,
            "PYTHONPATH": path,
            **given,
            **{f"SCHEDULER_{key}": value for key, value in settings.items()},
        }
        process = subprocess.Popen([sys.executable, "-m", module], env=environment)
        try:
            assert wait_until(lambda: ready.exists() or process.poll() is not None, 60)
            yield process, f"127.0.0.1:{json.loads(ready.read_text())['grpc_port']}"
        finally:
            process.kill()
            process.wait(20)

    def client(self, *addresses: str) -> LogReaders:
        return LogReaders(addresses, self.tls / "admin-cli")

    def sql(self, statement: str, *params: Any) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection, connection.execute(statement, params) as cursor:
            return cursor.fetchall() if cursor.description else []

    def check(self, reader: LogReaders, runs: range) -> None:
        """Every line of every run, exactly once and in order."""
        for run_id in runs:
            read = reader.read(run_id)
            assert list(read) == [TOKEN]
            assert read[TOKEN].lines == wanted(run_id)

    def moved(self, day: date, runs: range) -> None:
        """Each line is in one verified object, and none in the database."""
        assert self.sql("SELECT to_regclass(%s)", f"logs.chunks_{day:%Y%m%d}") == [(None,)]
        assert self.sql("SELECT DISTINCT state FROM logs.objects WHERE log_day = %s", day) == [("verified",)]
        [(lines,)] = self.sql("SELECT sum(line_count) FROM logs.manifests WHERE log_day = %s", day)
        assert lines == len(runs) * LINES


@pytest.fixture(scope="module")
def place(
    servers: SessionServers, default_pg_major: int, s3: Endpoints, tls: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    server = servers.postgres(default_pg_major)
    url = server.migrated()
    bucket = f"kills-{token_hex(8)}"
    keys = {"aws_access_key_id": s3.s3_access_key, "aws_secret_access_key": s3.s3_secret_key}
    boto3.client("s3", endpoint_url=s3.s3_endpoint_url, region_name=s3.s3_region, **keys).create_bucket(Bucket=bucket)
    yield Place(url=url, bucket=bucket, s3=s3, tls=tls, folder=tmp_path_factory.mktemp("kills"))
    server.drop(url)


@pytest.fixture(scope="module")
def ordinary(place: Place) -> Iterator[LogReaders]:
    """Asks a log-archiver that is never killed."""
    with place.archiver() as (_, address), place.client(address) as client:
        yield client


@pytest.mark.parametrize("steps", CASES, ids="+".join)
def test_a_kill_before_any_step(place: Place, ordinary: LogReaders, steps: tuple[str, ...]) -> None:
    day, runs = place.fill()
    for step in steps:
        with place.archiver("stepping_archiver", KILL_AT=step) as (process, address), place.client(address) as client:
            with pytest.raises(TobanError) as caught:
                client.archive()
            assert (process.wait(20), caught.value.code) == (-signal.SIGKILL, ErrorCode.UNAVAILABLE)
        place.check(ordinary, runs)
        # Nobody gave the lease back: others wait until it has been silent for long enough.
        with pytest.raises(TobanError, match="archives at this moment"):
            ordinary.archive()
        place.sql(TAKE_OVER)
    ordinary.archive()
    place.check(ordinary, runs)
    place.moved(day, runs)
    assert [one.problem for one in ordinary.verify() if not one.ok] == []


def test_two_archivers_that_take_over_from_each_other(place: Place, ordinary: LogReaders) -> None:
    """Each is asked for passes without end while the lease is taken from whoever has it, and readers read."""
    day, runs = place.fill(40)
    over = threading.Event()
    refused: set[ErrorCode] = set()
    broken: list[BaseException] = []

    def until_over(what: Callable[[], None]) -> None:
        try:
            while not over.is_set():
                what()
        except BaseException as error:  # raised below
            broken.append(error)
            over.set()

    def archive(client: LogReaders) -> None:
        try:
            assert not [one.message for one in client.archive() if one.action == "failed"]
        except TobanError as error:
            refused.add(error.code)

    def take_over() -> None:
        place.sql(TAKE_OVER)
        over.wait(0.05)

    with ExitStack() as held:
        addresses = [held.enter_context(place.archiver("stepping_archiver", TARGET_BYTES="1000"))[1] for _ in range(2)]
        clients = [held.enter_context(place.client(address)) for address in addresses]
        reader = held.enter_context(place.client(*addresses))
        [(before,)] = place.sql("SELECT epoch FROM logs.archive_lease")
        work = [
            partial(archive, clients[0]),
            partial(archive, clients[1]),
            take_over,
            partial(place.check, reader, runs),
        ]
        threads = [threading.Thread(target=until_over, args=(one,)) for one in work]
        for thread in threads:
            thread.start()
        gone = wait_until(
            lambda: over.is_set() or place.sql("SELECT to_regclass(%s)", f"logs.chunks_{day:%Y%m%d}") == [(None,)], 120
        )
        over.set()
        for thread in threads:
            thread.join()
        if broken:
            raise broken[0]
        assert gone
        # Taken over amid a pass, at its beginning, and while the row of the lease was held by the other one.
        assert refused <= {ErrorCode.FENCED_OUT, ErrorCode.CONFLICT, ErrorCode.DEADLINE_EXCEEDED}
        [(after,)] = place.sql("SELECT epoch FROM logs.archive_lease")
        assert after - before > 2, "the lease went from one to the other"
    place.sql("UPDATE logs.archive_lease SET held = false")
    ordinary.archive()
    place.check(ordinary, runs)
    place.moved(day, runs)
    assert [one.problem for one in ordinary.verify() if not one.ok] == []
