"""Jobs that try to outlive their run, to stop who watches them, and to read what is not theirs, in class `shared`.

In that class a job runs as the user of its executor: what that leaves open is in docs/security.md. Class `isolated` is in test_isolation.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from toban_testing.admin_client import AdminClient
from toban_testing.job_escapes import DAEMONS, ENDS, gone, marked, run


@pytest.mark.parametrize("kind", DAEMONS)
def test_no_process_outlives_its_run(attacks: Any, admin: AdminClient, mark: str, kind: str) -> None:
    run_id = run(admin, DAEMONS[kind], mark)
    admin.until_ended(run_id)
    attacks.expect(kind, refused=gone(admin, mark), instead=marked(mark))


@pytest.mark.parametrize("kind", ENDS)
def test_who_attacks_its_guard_is_ended(attacks: Any, admin: AdminClient, mark: str, kind: str) -> None:
    run_id = run(admin, ENDS[kind], mark, timeout_seconds=3)
    ended = admin.until_ended(run_id, seconds=120)
    attacks.expect(kind, refused=gone(admin, mark) and ended.state != "SUCCEEDED", instead=(ended.state, marked(mark)))
    again = run(admin, ["true"], mark)
    assert admin.until_ended(again, seconds=120).state == "SUCCEEDED", "the executor works on"


def test_a_job_is_given_nothing_of_the_services(attacks: Any, admin: AdminClient, stack: Any, mark: str) -> None:
    """Its environment, descriptors and arguments, and those of the guards above it, have no credential."""
    script = "; echo --; ".join(
        (
            "cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'",
            "ls -l /proc/$$/fd | sed 's/.* //'",
            "ps -eo args",
            "echo end",
        )
    )
    run_id = run(admin, ["sh", "-c", script], mark)
    assert admin.until_ended(run_id).state == "SUCCEEDED"

    def whole() -> str:
        lines = admin.log(run_id)
        return "\n".join(lines) if lines[-1:] == ["end"] else ""

    text = admin.until(whole, of="the output of the job")
    environment, descriptors, arguments, _ = text.split("\n--\n")
    for name in ("DATABASE_URL", "REDIS_URL", "S3_", "SECRETS_KEY", "PASSWORD"):
        attacks.expect(f"{name} in an environment", refused=f"SCHEDULER_{name}" not in environment)
    for word in ("journal", "tls.key", "instance-secret", "sqlite"):
        attacks.expect(f"{word} among descriptors", refused=word not in descriptors)
    endpoints = stack.endpoints()
    for what, secret in {"PostgreSQL": endpoints.database_url, "Redis": endpoints.redis_url}.items():
        for part in ("environment", environment), ("command line", arguments):
            attacks.expect(f"the address of {what} in a {part[0]}", refused=secret not in part[1])


def test_a_job_reads_no_file_of_another_user(attacks: Any, stack: Any) -> None:
    """Keys, state and work folders are closed to other users of the machine."""
    folders = [
        *stack.home.tls.glob("*/tls.key"),
        *stack.home.data.glob("executor-*"),
        *stack.home.data.glob("executor-*/instance-secret"),
    ]
    for path in folders:
        attacks.expect(
            f"{path.name} for others", refused=path.stat().st_mode & 0o077 == 0, instead=oct(path.stat().st_mode)
        )
