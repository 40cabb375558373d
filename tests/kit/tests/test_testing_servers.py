"""The session's servers: fresh databases, an own Redis database and S3."""

import psycopg
import pytest
import redis

from toban_stack.servers import Endpoints
from toban_testing.database_reset import TABLES
from toban_testing.servers import SessionServers


@pytest.mark.pg_versions
def test_an_empty_database_on_each_version(pg_empty_url: str, pg_major: int) -> None:
    with psycopg.connect(pg_empty_url) as connection:
        row = connection.execute("SELECT current_setting('server_version_num')::int / 10000").fetchone()
        schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = 'scheduler'").fetchall()
    assert row == (pg_major,)
    assert schemas == []


def test_a_migrated_database_is_fresh_for_each_test(servers: SessionServers, pg_major: int, pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        connection.execute("CREATE TABLE scheduler.mine (a int)")
    other = servers.postgres(pg_major).migrated()
    with psycopg.connect(other) as connection:
        row = connection.execute("SELECT to_regclass('scheduler.mine'), to_regclass('scheduler.leader')").fetchone()
    servers.postgres(pg_major).drop(other)
    assert row is not None
    assert row[0] is None
    assert row[1] is not None


def contents(url: str) -> dict[str, list[object]]:
    """Every row of every table, and where each sequence stands."""
    with psycopg.connect(url) as connection:
        found: dict[str, list[object]] = {
            "sequences": connection.execute("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1").fetchall()
        }
        for (name,) in connection.execute(TABLES).fetchall():
            found[name] = connection.execute(f"SELECT t::text FROM {name} t ORDER BY 1").fetchall()
    return found


def test_a_database_is_used_again_as_if_it_were_new(servers: SessionServers, pg_major: int) -> None:
    server = servers.postgres(pg_major)
    url = server.migrated()
    fresh = contents(url)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE scheduler.leader SET epoch = 77")
        connection.execute("DELETE FROM scheduler.run_transitions")
        connection.execute("INSERT INTO scheduler.settings (name, value) VALUES ('leader_tick_seconds', '2')")
        connection.execute("SELECT nextval(seqrelid::regclass) FROM pg_sequence")
        connection.execute("SELECT logs.ensure_partitions('2001-01-01', '2001-01-03')")
        connection.execute("CREATE TABLE scheduler.mine (a int)")
        connection.execute("CREATE TABLE big AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    assert contents(url) != fresh
    server.take_back(url)
    again = server.migrated()
    assert again == url
    assert contents(again) == fresh
    server.drop(again)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE scheduler.leader ADD CHECK (epoch >= 0)",
        "CREATE OR REPLACE FUNCTION scheduler.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "DROP TABLE scheduler.limit_overrides",
        "GRANT SELECT ON scheduler.leader TO PUBLIC",
        "ALTER TABLE scheduler.leader ALTER COLUMN epoch SET DEFAULT 5",
        "INSERT INTO scheduler.settings (name, value) SELECT i, to_jsonb(repeat('x', 1000)) FROM generate_series(1, 2000) i",
    ],
)
def test_a_database_with_another_shape_is_dropped(servers: SessionServers, pg_major: int, change: str) -> None:
    server = servers.postgres(pg_major)
    url = server.migrated()
    with psycopg.connect(url) as connection:
        connection.execute(change.encode())
    server.take_back(url)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


def test_open_connections_are_terminated_by_a_reset(servers: SessionServers, pg_major: int) -> None:
    server = servers.postgres(pg_major)
    url = server.migrated()
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE scheduler.leader")
        server.take_back(url)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    server.drop(url)
    other = server.migrated()
    assert other != url, "a dropped database is not reused"
    server.take_back(other)


def test_redis_is_empty_and_asks_for_its_password(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as connection:
        assert connection.dbsize() == 0
        connection.set("a", "b")
    without_password = redis_url.replace(redis_url.split("@")[0].removeprefix("redis://") + "@", "")
    with redis.Redis.from_url(without_password) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.dbsize()


def test_s3_keeps_objects_for_those_with_the_key(s3: Endpoints) -> None:
    import boto3
    from botocore.exceptions import ClientError

    def client(secret: str) -> object:
        keys = {"aws_access_key_id": s3.s3_access_key, "aws_secret_access_key": secret}
        return boto3.client("s3", endpoint_url=s3.s3_endpoint_url, region_name=s3.s3_region, **keys)

    good, bad = client(s3.s3_secret_key), client("wrong")
    good.put_object(Bucket=s3.s3_bucket, Key="k", Body=b"body")
    assert good.get_object(Bucket=s3.s3_bucket, Key="k")["Body"].read() == b"body"
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        bad.get_object(Bucket=s3.s3_bucket, Key="k")
