"""Every command of docs/external-workers.md, as it is written there."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toban_stack.stack import Stack
from toban_testing.accounts import user_token
from toban_testing.admin_client import AdminClient
from toban_testing.documents import Shell, Step, steps
from toban_testing.stack_fixtures import run_environment

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shell(stack: Stack, tmp_path: Path) -> Iterator[Shell]:
    """One in a folder that has of a clone what the pages name: examples, the command, and the stack."""
    for name in ("examples", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".toban").symlink_to(stack.home.root)
    path = f"{ROOT}/scripts:{Path(sys.executable).parent}:{os.environ['PATH']}"
    with Shell(tmp_path, run_environment(stack, PATH=path)) as made:
        yield made


def steps_of(page: str) -> list[Step]:
    return list(steps((ROOT / "docs" / page).read_text(encoding="utf-8")))


def test_external_workers(
    stack: Stack, admin: AdminClient, shell: Shell, toban: Callable[..., str], tmp_path: Path
) -> None:
    # `make up` applies the examples.
    toban("apply", "-f", str(ROOT / "examples/external-worker/job.yaml"))
    token = user_token(admin, "page-worker", "operator")
    typed: dict[str, str] = {}
    run = ""

    def claimed() -> str:
        """Starts a run and claims it, as the page does; the line that keeps the key of the claim."""
        nonlocal run
        run = shell.types(next(one for one in typed if one.startswith("toban run start video"))).split()[1]
        found = json.loads(shell.types(next(one for one in typed if "/claims" in one)))
        return f"key='{json.dumps(found['steps'][0]['key'])}'"

    for step in steps_of("external-workers.md"):
        command = step.command
        if step.file:
            (tmp_path / step.file).write_text(step.text)
            continue
        if command.startswith("python examples/"):
            command = f"{command.partition('127.')[0]}{','.join(stack.coordinators)} 1 >worker.log 2>&1 &"
        elif command.startswith("scripts/toban"):
            # The page has another shell here, without the worker's certificate.
            shell.types("unset SCHEDULER_TLS_DIR")
        elif command.startswith("toban user add"):
            # An administrator's, without the worker's token.
            shell.types("unset TOBAN_URL TOBAN_TOKEN")
        elif command.startswith("export TOBAN_URL="):
            command = f"export TOBAN_URL=http://{stack.sites[0]}/api/v1 TOBAN_TOKEN={token}"
        elif command.startswith("toban run start video"):
            # The claim of the page follows, and then its key, whose line is replaced.
            typed[command] = ""
            continue
        elif "/claims" in command:
            typed[command] = ""
            continue
        elif command.startswith("key="):
            command = claimed()
        elif "/fail" in command or "/acknowledge-cancel" in command:
            shell.types(claimed())
            if "/acknowledge-cancel" in command:
                toban("run", "cancel", run)
        typed[step.command] = shell.types(command)
        assert "urn:toban:error" not in typed[step.command], (step, typed[step.command])
    said = {command.partition(" -d ")[0].rpartition("/")[2]: text for command, text in typed.items() if text}
    assert json.loads(said["heartbeats"]) == {"lost": [], "cancel": []}
    assert json.loads(said["complete"])["answers"][0]["result"] == "accepted"
    assert json.loads(said["fail"]) == {"result": "accepted"}
    assert admin.until(lambda: admin.run(int(run)).state == "CANCELED", of="the acknowledged cancel")
