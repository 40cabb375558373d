"""Retention of the archive over real PostgreSQL and a real S3 server: what expires, what readers are told, and every kill point."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError

from toban_domain.errors import ErrorCode, FencedOut, TobanError
from toban_domain.settings import Settings
from toban_log_archiver.adapters.object_store import S3Bucket
from toban_log_archiver.app import expiry
from toban_log_archiver.app.expiry import expires_before, forgotten_before
from toban_log_archiver.app.pass_report import PassEvent
from toban_log_archiver.store import archive_expiry
from toban_proto.v1 import logs_pb2 as pb
from toban_store.migrate import MIGRATIONS

DAYS = {"log_retention_days_db": 7, "log_retention_days_archive": 30, "history_retention_days": 60}
RUNS = (1, 2, 3)
LINES = list(range(1, 40))
STEPS = ("mark", "expire", "expire_commit", "delete", "deleted", "forget_object", "forget_day")


class Killed(BaseException):
    """Stands for a kill: nothing that is done in the way out of an error is done."""


def kill_at(step: str, number: int = 1) -> Callable[[str], None]:
    seen = 0

    def before_step(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == number:
            raise Killed(step)

    return before_step


async def archived(world: Any, *, age: int, runs: Any = RUNS) -> Any:
    """Runs of a day that many days ago, in the archive already."""
    day = world.today - timedelta(days=age)
    for run_id in runs:
        await world.store(run_id, 10, LINES, day=day, seal=LINES[-1])
    await world.work(target_bytes=1500)
    assert not await world.has_day(day)
    return day


async def keys(world: Any) -> dict[str, bool]:
    """Objects that were ever written: whether each is in the bucket."""
    rows = await world.sql("SELECT key FROM logs.objects ORDER BY id")
    return {row["key"]: await world.bucket.digest(row["key"]) is not None for row in rows}


def actions(did: list[PassEvent], action: str) -> list[PassEvent]:
    return [one for one in did if one.action == action]


def test_days_that_expire_and_that_are_forgotten() -> None:
    today = date(2031, 3, 31)
    assert expires_before(today, archive_days=0, db_days=7) is None
    assert expires_before(today, archive_days=30, db_days=7) == date(2031, 3, 1)
    assert expires_before(today, archive_days=3, db_days=7) == date(2031, 3, 24)
    assert forgotten_before(today, archive_days=0, db_days=7, history_days=1) is None
    assert forgotten_before(today, archive_days=3, db_days=7, history_days=1) == today - timedelta(days=32)
    assert forgotten_before(today, archive_days=90, db_days=7, history_days=60) == today - timedelta(days=90)


async def test_what_is_old_enough_leaves_the_bucket_and_readers_say_so(world: Any) -> None:
    await archived(world, age=40)
    await archived(world, age=20, runs=[7])
    before = await keys(world)
    assert len(before) == 3 and all(before.values())
    world.settings.known = Settings({**DAYS, "log_retention_days_archive": 0})
    assert await world.work() == [], "0 keeps for ever"
    # The setting counts from the next pass on.
    world.settings.known = Settings(DAYS)
    (would,) = [one async for one in world.archiver().plan()]
    assert (would.action, would.tokens, would.lines) == ("would_expire", 3, 3 * len(LINES))
    did = await world.work()
    gone = actions(did, "expired")
    assert {one.key: False for one in gone} | {
        key: True for key in before if key not in {one.key for one in gone}
    } == await keys(world)
    assert sum(one.lines for one in gone) == 3 * len(LINES)
    assert await world.read(1) == []
    assert await world.read(7) == world.wanted(7, 10, LINES)
    said = [answer async for answer in world.reader().Read(pb.ReadLogRequest(run_id=1), None)]
    assert [(one.token, one.expired_lines) for one in said] == [(10, len(LINES))]
    (described,) = (await world.reader().Describe(pb.DescribeLogRequest(run_id=2), None)).attempts
    assert (described.lines, described.expired_lines, described.place) == (0, len(LINES), "")
    assert await world.work() == []


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_before_any_step_is_repaired_by_the_next_pass(world: Any, step: str) -> None:
    await archived(world, age=70)
    await archived(world, age=20, runs=[7])
    world.settings.known = Settings(DAYS)
    with pytest.raises(Killed):
        await world.work(before_step=kill_at(step))
    # Never an error for a reader: its lines, or that they are gone.
    assert await world.read(1) in (world.wanted(1, 10, LINES), [])
    await world.work(lease_seconds=0.0)
    assert await world.read(1) == []
    assert await world.read(7) == world.wanted(7, 10, LINES)
    assert list((await keys(world)).values()) == [True] * len(
        await world.sql("SELECT 1 FROM logs.objects WHERE deleted_at IS NULL")
    )
    # Older than the history as well: nothing of it is remembered.
    assert await world.sql("SELECT 1 FROM logs.tokens WHERE run_id <> 7") == []
    assert await world.sql("SELECT 1 FROM logs.manifests WHERE run_id <> 7") == []


@pytest.mark.parametrize("step", ["mark", "expire", "delete", "deleted"])
async def test_a_stale_archiver_deletes_and_marks_nothing_more(world: Any, step: str) -> None:
    await archived(world, age=40)
    world.settings.known = Settings(DAYS)
    state = "SELECT count(marked_at) AS marked, count(expired_at) AS expired, count(deleted_at) AS deleted FROM logs.objects"
    before: list[Any] = []

    def take_over(name: str) -> None:
        if name == step and not before:
            with psycopg.connect(world.url, autocommit=True) as connection:
                connection.execute("UPDATE logs.archive_lease SET epoch = epoch + 1, holder = 'newer', held = true")
                before.append(connection.execute(state).fetchone())

    with pytest.raises(FencedOut, match="no longer the current epoch of the archiver"):
        await world.work(before_step=take_over)
    assert list((await world.sql(state))[0].values()) == list(before[0])
    # Of what is marked it may have deleted the one object that was on its way.
    assert list((await keys(world)).values()).count(False) <= 1
    await world.work(lease_seconds=0.0)
    assert not any((await keys(world)).values())


async def test_a_store_that_does_not_delete_stops_nothing_else(world: Any) -> None:
    await archived(world, age=40)
    await world.store(9, 10, [1, 2], seal=2)
    world.settings.known = Settings(DAYS)

    class ReadOnly:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.bucket, name)

        async def delete(self, key: str) -> None:
            raise TobanError(ErrorCode.UNAVAILABLE, f"the object store refuses to delete {key}: AccessDenied")

    did = await world.work(store=ReadOnly())
    assert [one.action for one in did] == ["archived", "dropped", "failed"]
    (lease,) = await world.sql("SELECT last_error FROM logs.archive_lease")
    assert "AccessDenied" in lease["last_error"]
    assert await world.read(1) == [], "they have expired all the same"
    assert len(actions(await world.work(), "expired")) == len(await keys(world)) - 1


class Locked:
    """A bucket in which some objects may not be deleted."""

    def __init__(self, world: Any, locked: set[str]) -> None:
        self.bucket, self.locked = world.bucket, locked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bucket, name)

    async def delete(self, key: str) -> None:
        if key in self.locked:
            raise TobanError(ErrorCode.CONFLICT, f"the object store refuses to delete {key}: it is locked")
        await self.bucket.delete(key)


async def test_an_object_that_may_not_be_deleted_holds_nothing_else_up(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(world, age=80, runs=[4])
    await archived(world, age=70)
    world.settings.known = Settings(DAYS)
    first, *others = await keys(world)
    assert len(others) > 1
    did = await world.work(store=Locked(world, {first}))
    assert [one.key for one in actions(did, "expired")] == others
    assert len(actions(did, "forgotten")) == 1, "the other day"
    assert "is locked" in actions(did, "failed")[0].message
    assert await keys(world) == {first: True}
    # Many of them are not asked for in every pass, and keep the next ones from nothing.
    monkeypatch.setattr(expiry, "MAX_REFUSED", 1)
    world.settings.known = Settings({**DAYS, "log_retention_days_archive": 0})
    await archived(world, age=70)
    world.settings.known = Settings(DAYS)
    archiver = world.archiver(store=Locked(world, {first}))
    did = []
    for _ in range(2):
        await archiver.run_pass(did.append)
    assert len(actions(did, "expired")) == len(others)


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, ErrorCode.CONFLICT), (409, ErrorCode.CONFLICT), (429, ErrorCode.UNAVAILABLE), (503, ErrorCode.UNAVAILABLE)],
)
async def test_a_store_that_says_no_is_not_one_that_is_busy(
    monkeypatch: pytest.MonkeyPatch, status: int, code: ErrorCode
) -> None:
    class Answer:
        def delete_object(self, **_: Any) -> None:
            raise ClientError({"ResponseMetadata": {"HTTPStatusCode": status}}, "DeleteObject")  # type: ignore[typeddict-item]

    bucket = S3Bucket(endpoint_url="http://127.0.0.1:1", bucket="b", access_key="k", secret_key="s", region="r")
    monkeypatch.setattr(bucket, "_data", Answer())
    with pytest.raises(TobanError) as caught:
        await bucket.delete("key")
    assert caught.value.code is code


async def test_what_is_marked_is_read_and_kept_when_the_retention_grows_again(world: Any) -> None:
    """A retention of 30 days instead of 300, corrected within a day."""
    await archived(world, age=40)
    world.settings.known = Settings(DAYS)
    day = 24 * 3600.0
    (would,) = [one async for one in world.archiver(grace_seconds=day).plan()]
    assert "24 hours" in would.message
    assert await world.work(grace_seconds=day) == []
    marked = "SELECT count(marked_at) AS n FROM logs.objects"
    assert (await world.sql(marked))[0]["n"] == len(await keys(world))
    assert await world.read(1) == world.wanted(1, 10, LINES)
    world.settings.known = Settings({**DAYS, "log_retention_days_archive": 300})
    assert await world.work(grace_seconds=day) == []
    assert (await world.sql(marked))[0]["n"] == 0
    # Marked again, it expires a day later, not before.
    world.settings.known = Settings(DAYS)
    await world.work(grace_seconds=day)
    await world.execute("UPDATE logs.objects SET marked_at = marked_at - interval '23 hours'")
    assert await world.work(grace_seconds=day) == []
    await world.execute("UPDATE logs.objects SET marked_at = marked_at - interval '1 hour'")
    assert len(actions(await world.work(grace_seconds=day), "expired")) == len(await keys(world))
    assert await world.read(1) == []


async def test_nothing_expires_by_settings_that_no_coordinator_confirms(world: Any) -> None:
    await archived(world, age=40)
    archiver = world.archiver()
    world.settings.known = Settings(DAYS)
    world.gateway.error = TobanError(ErrorCode.UNAVAILABLE, "no coordinator answers")
    did: list[PassEvent] = []
    await archiver.run_pass(did.append)
    assert [(one.action, one.message) for one in did] == [("failed", "no coordinator answers")]
    # The settings that this process received last are old: another retention holds by now.
    world.gateway.error = None
    world.gateway.settings = type(world.settings)(known=Settings({**DAYS, "log_retention_days_archive": 300}))
    assert await world.work() == []
    assert all((await keys(world)).values())


async def test_the_migration_is_not_taken_back_once_objects_are_gone(world: Any) -> None:
    await archived(world, age=40, runs=[1])
    down = MIGRATIONS.joinpath("logs/0003_expiry.sql").read_text().split("-- migrate:down")[1]
    with psycopg.connect(world.url) as connection:
        connection.execute(down)
        connection.rollback()
        world.settings.known = Settings(DAYS)
        await world.work()
        with pytest.raises(psycopg.errors.RaiseException, match="have expired"):
            connection.execute(down)


async def test_a_large_object_is_forgotten_in_pieces(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await archived(world, age=70)
    world.settings.known = Settings(DAYS)
    monkeypatch.setattr(archive_expiry, "FORGET_ROWS", 3)
    steps: list[str] = []
    rows = (await world.sql("SELECT count(*) AS n FROM logs.manifests"))[0]["n"]
    await world.work(before_step=steps.append)
    assert steps.count("forget_object") >= rows // 3 > 1
    assert await world.sql("SELECT 1 FROM logs.manifests") == await world.sql("SELECT 1 FROM logs.objects") == []


async def test_lines_that_expire_under_a_reader_are_gone_and_no_error(world: Any) -> None:
    await archived(world, age=40, runs=[1])
    world.settings.known = Settings(DAYS)
    passes: list[Any] = []

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.bucket, name)

        async def read(self, key: str, offset: int, length: int) -> bytes:
            if not passes:
                passes.append(await world.work())
            return bytes(await world.bucket.read(key, offset, length))

    said = [answer async for answer in world.reader(store=Slow()).Read(pb.ReadLogRequest(run_id=1), None)]
    assert [(one.token, one.expired_lines, len(one.lines)) for one in said if one.expired_lines or one.lines] == [
        (10, len(LINES), 0)
    ]
    # An object that is missing without having expired is an error.
    await archived(world, age=20, runs=[2])
    for key, there in (await keys(world)).items():
        if there:
            world.remove(key)
    with pytest.raises(TobanError) as caught:
        await world.read(2)
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_lines_that_come_again_after_they_expired(world: Any) -> None:
    """What is sent again of a day that has expired is not archived twice, and its table does not stay."""
    day = await archived(world, age=31, runs=[1])
    world.settings.known = Settings(DAYS)
    await world.work()
    await world.store(1, 10, LINES, day=day, seal=LINES[-1])
    await world.store(1, 10, [40], day=day)
    await world.work()
    assert not await world.has_day(day)
    await world.work()
    assert not any((await keys(world)).values())
    assert await world.read(1) == []
