"""Two coordinators behind a proxy that acknowledges bytes and forwards none: a hung session costs one reconnect (docs/fencing.md 3.1)."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from toban_testing.proxy import FaultProxy
from toban_testing.waiting import until_async

# Without bounds a beat never comes again; with them it comes after 2 to 4 s on an idle machine.
BEAT_SECONDS = 20.0
# What Compose grants a coordinator after SIGTERM.
STOP_GRACE_SECONDS = 20.0

STATE = "SELECT epoch, beat, last_tick_at, clock_timestamp() AS now FROM scheduler.leader_beat"


@pytest.fixture
async def proxy(pg_url: str) -> AsyncIterator[FaultProxy]:
    server = conninfo_to_dict(pg_url)
    async with FaultProxy(host=str(server["host"]), port=int(server["port"] or 0)) as made:
        yield made


@pytest.fixture
async def twins(
    pg_url: str, proxy: FaultProxy, redis_url: str, tls: Path, tmp_path: Path
) -> AsyncIterator[list[Process]]:
    """Two coordinators behind the proxy, one of which leads and ticks."""
    user, password, name = (conninfo_to_dict(pg_url)[key] for key in ("user", "password", "dbname"))
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDULER_")}
    fields: dict[str, Any] = {
        "DATABASE_URL": f"postgresql://{user}:{password}@{proxy.address}/{name}",
        "REDIS_URL": redis_url,
        "TLS_DIR": tls / "coordinator",
        "LOG_FORMAT": "json",
        "NODE_ID": "twin",
    }
    environment = kept | {f"SCHEDULER_{name}": str(value) for name, value in fields.items()}
    started: list[Process] = []
    try:
        for number in (1, 2):
            mine = environment | {"SCHEDULER_READY_FILE": str(tmp_path / f"ready-{number}")}
            with (tmp_path / f"log-{number}").open("wb") as out:
                program = (sys.executable, "-m", "toban_coordinator")
                started.append(await asyncio.create_subprocess_exec(*program, env=mine, stdout=out, stderr=out))
        await until_async(
            lambda: state(pg_url), lambda row: row["last_tick_at"] and len([*tmp_path.glob("ready-?")]) == 2
        )
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def state(url: str) -> dict[str, Any]:
    """What the beat shows, read past the proxy."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as connection:
        row = await (await connection.execute(STATE)).fetchone()
    assert row is not None
    return row


async def beats_again(url: str) -> None:
    """Waits for a beat that nobody had sent yet, then for a tick of all loops after this call."""
    asked = await state(url)
    # One beat may have been on its way already.
    await until_async(lambda: state(url), lambda found: found["beat"] >= asked["beat"] + 2, BEAT_SECONDS)
    await until_async(
        lambda: state(url), lambda found: found["last_tick_at"] and found["last_tick_at"] > asked["now"], BEAT_SECONDS
    )


async def test_hung_sessions_cost_a_reconnect_and_no_leader(
    twins: list[Process], pg_url: str, proxy: FaultProxy
) -> None:
    for _ in range(2):
        proxy.swallow()
        await beats_again(pg_url)
    assert [process.returncode for process in twins] == [None, None]


async def test_a_coordinator_whose_sessions_hang_ends_within_its_grace(twins: list[Process], proxy: FaultProxy) -> None:
    proxy.swallow()
    # So that statements are under way when the signal comes.
    await asyncio.sleep(0.5)
    for process in twins:
        process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(STOP_GRACE_SECONDS):
        assert [await process.wait() for process in twins] == [0, 0]
