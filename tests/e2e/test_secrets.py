"""Secrets over a whole stack: a job gets the value in memory, and nothing that Toban stores, sends or prints has it (docs/secrets.md)."""

import base64
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from toban_domain.errors import TobanError
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import sql

pytestmark = pytest.mark.e2e
SDK = Path(__file__).parents[2] / "libs/sdk/src"
VALUE = "hunter2-Zaphod-42/tea"
SECOND = "second-Trillian-43+tea"


def job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    steps = [{"argv": [sys.executable, "-c", script]}]
    body = {"steps": steps, "env": {"PYTHONPATH": str(SDK)}, "allow_shell": True, **spec}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def forms(value: str) -> list[str]:
    """As the value could lie somewhere: as it is, as base64, and as PostgreSQL prints bytes."""
    return [value, base64.b64encode(value.encode()).decode(), value.encode().hex()]


def in_database(stack: Stack, value: str) -> list[str]:
    """Tables of both schemas with a row that has the value."""
    found = []
    # One connection: there is a table for each day of each partitioned one.
    with psycopg.connect(stack.endpoints().database_url) as connection:
        names = (
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname IN ('scheduler', 'logs', 'public')"
        )
        for (table,) in connection.execute(names).fetchall():
            for (row,) in connection.execute(f"SELECT t::text FROM {table} t"):
                found += [table for form in forms(value) if form in row]
    return found


def in_files(folder: Path, value: str) -> list[Path]:
    """Files below `folder` that have the value."""
    wanted = [form.encode() for form in forms(value)]
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if any(form in path.read_bytes() for form in wanted)]


def in_processes(value: str) -> list[str]:
    """Command lines and environments of this machine's processes that have the value."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                if value.encode() in (process / name).read_bytes():
                    found.append(f"{process}/{name}")
            except OSError:
                continue
    return found


def in_redis(stack: Stack, value: str) -> list[bytes]:
    with redis.Redis.from_url(stack.endpoints().redis_url) as client:
        dumps = {key: client.dump(key) or b"" for key in client.keys("*")}
    return [key for key, dump in dumps.items() if value.encode() in bytes(dump)]


TELLS_ALL = """
import base64, json, os, pathlib, sys, time, toban
value = toban.secret("db-password")
path = pathlib.Path(os.environ["PGPASSFILE"])
assert path.read_text() == value
print("plain", value, "base64", base64.b64encode(value.encode()).decode(), json.dumps({"x": value}), flush=True)
print("::progress 50 it is " + value + "::", flush=True)
print("error", value, file=sys.stderr, flush=True)
run = toban.current_job()
run.save_checkpoint({"at": value})
run.output({"got": value, "length": len(value)})
run.log_ref("s3://bucket/" + value)
print("file", path, oct(path.stat().st_mode & 0o777), flush=True)
gate = pathlib.Path(sys.argv[1])
while not gate.exists(): time.sleep(0.05)
sys.exit(value)
"""


def test_a_job_has_the_value_and_nothing_else_does(
    stack: Stack, admin: AdminClient, toban: Callable[..., str], tmp_path: Path
) -> None:
    assert "stored (version 1)" in toban("secret", "set", "db-password", typed=VALUE + "\n")
    gate = tmp_path / "gate"
    document = job("tells-all", TELLS_ALL, secrets=[{"name": "db-password", "file_env": "PGPASSFILE"}])
    document["spec"]["steps"][0]["argv"].append(str(gate))
    admin.apply(document)
    [run] = admin.start("tells-all")

    def where() -> Path | None:
        lines = [line for line in admin.log(run) if line.startswith("file ")]
        return Path(lines[0].split()[1]) if lines else None

    path = admin.until(where, of="the job has said all")
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert path.is_relative_to("/dev/shm")
    assert in_processes(VALUE) == []
    # With the checkpoint of the live run.
    assert sql(stack, "SELECT 1 FROM scheduler.runs_live WHERE checkpoint IS NOT NULL AND id = %(run)s", run=run)
    assert in_database(stack, VALUE) == []
    gate.touch()
    ended = admin.until_ended(run)
    assert (ended.state, ended.exit_code) == ("FAILED", 1)
    lines = admin.log(run)
    assert 'plain *** base64 *** {"x": "***"}' in lines
    assert "error ***" in lines
    assert VALUE not in "\n".join(lines)
    assert json.loads(ended.result_json) == {"got": "***", "length": len(VALUE)}
    assert ended.log_ref == "s3://bucket/***"
    assert json.loads(ended.progress_json)["summary"] == "it is ***"
    assert VALUE not in str(ended)
    assert not path.exists()
    assert in_database(stack, VALUE) == []
    assert in_redis(stack, VALUE) == []
    # Journals and spools of the executor, data of the servers, logs of every process.
    assert in_files(stack.home.root, VALUE) == []


def test_the_search_itself_finds_what_is_there(stack: Stack, admin: AdminClient) -> None:
    """Without this, the test above could not fail."""
    admin.apply(job("says-it-openly", "import time; time.sleep(0)", env={"PLAIN": SECOND}))
    assert in_database(stack, SECOND) != []


def test_the_audit_and_the_list_have_names_only(toban: Callable[..., str]) -> None:
    toban("secret", "set", "listed", "--job", "tells-all", "--reason", "for the list", typed=VALUE)
    shown = toban("secret", "list") + toban("secret", "list", "-o", "json") + toban("audit", "list", "-o", "json")
    assert "listed" in shown
    assert "secret.set" in shown
    assert VALUE not in shown


def test_what_a_job_may_not_have_is_refused_with_the_remedy(admin: AdminClient, toban: Callable[..., str]) -> None:
    toban("secret", "set", "listed", "--job", "tells-all", typed=VALUE)
    with pytest.raises(TobanError) as refused:
        admin.apply(job("secrets-other", "pass", secrets=[{"name": "lister"}]))
    assert "spec.secrets[0].name: there is no secret 'lister'; did you mean 'listed'?" in refused.value.message
    with pytest.raises(TobanError) as refused:
        admin.apply(job("secrets-other", "pass", secrets=[{"name": "listed"}]))
    assert (
        "secret 'listed' is for other jobs; run `toban secret set listed --job secrets-other`" in refused.value.message
    )
    toban("secret", "set", "short-lived", typed=SECOND)
    admin.apply(job("secrets-other", "pass", secrets=[{"name": "short-lived"}]))
    assert "is used by job secrets-other" in toban("secret", "delete", "short-lived", code=74)
    [before] = admin.start("secrets-other")
    assert admin.until_ended(before).state == "SUCCEEDED"
    toban("secret", "delete", "short-lived", "--force")
    assert "there is no secret 'short-lived'" in toban("run", "start", "secrets-other", code=66)


def test_keys_rotate_while_jobs_run(stack: Stack, admin: AdminClient, toban: Callable[..., str]) -> None:
    toban("secret", "set", "rotated", typed=SECOND)
    admin.apply(
        job(
            "rotates",
            f"import toban; assert toban.secret('rotated') == {SECOND[::-1]!r}[::-1]",
            secrets=[{"name": "rotated"}],
        )
    )
    keys = stack.home.secrets / "secrets-key"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    old = keys.read_text()
    keys.write_text(base64.b64encode(os.urandom(32)).decode() + "\n" + old)
    before = {row["name"]: row["key_id"] for row in sql(stack, "SELECT name, key_id FROM scheduler.secrets")}
    assert "secrets encrypted again" in toban("secret", "rotate")
    after = {row["name"]: row["key_id"] for row in sql(stack, "SELECT name, key_id FROM scheduler.secrets")}
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())
    keys.write_text(keys.read_text().splitlines()[0] + "\n")
    [run] = admin.start("rotates")
    assert admin.until_ended(run).state == "SUCCEEDED"


def test_without_its_key_a_run_fails_clearly_and_others_go_on(
    stack: Stack, admin: AdminClient, toban: Callable[..., str]
) -> None:
    toban("secret", "set", "locked", typed=SECOND)
    admin.apply(job("needs", "pass", secrets=[{"name": "locked"}]), job("does-without", "pass"))
    keys = stack.home.secrets / "secrets-key"
    kept = keys.read_text()
    keys.unlink()
    try:
        needs, without = *admin.start("needs"), *admin.start("does-without")
        ended = admin.until_ended(needs)
        assert (ended.state, ended.reason) == ("FAILED", "spawn_failed")
        assert ended.error_summary.startswith("SECRET_UNAVAILABLE: secret 'locked' cannot be decrypted: key file")
        assert admin.until_ended(without).state == "SUCCEEDED"
        assert "openssl rand" in toban("secret", "set", "locked", typed=SECOND, code=74)
        found = json.loads(toban("doctor", "-o", "json", code=1))
        [check] = [one for one in found["checks"] if one["name"] == "secrets-key"]
        assert (check["status"], "openssl rand" in check["remedy"]) == ("error", True)
    finally:
        keys.write_text(kept)
        keys.chmod(0o600)
    [run] = admin.start("needs")
    assert admin.until_ended(run).state == "SUCCEEDED"
    keys.chmod(0o644)
    try:
        found = json.loads(toban("doctor", "-o", "json", code=1))
    finally:
        keys.chmod(0o600)
    [check] = [one for one in found["checks"] if one["name"] == "secrets-key"]
    assert (check["status"], check["remedy"]) == ("error", "chmod 0600")
