"""Every command and program of docs/external-workers.md and docs/sdk.md as it is written there, and the manifests of docs/choosing.md."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from toban.fencing import SqlGuard
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
            shell.types("unset TOBAN_TLS_DIR")
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


@pytest.fixture
def shop(stack: Stack) -> Iterator[str]:
    """The address of the stack's database, with the tables that docs/sdk.md writes to."""
    address = stack.endpoints().database_url
    tables = "CREATE TABLE orders (id int, paid_at timestamptz); CREATE TABLE payouts (account text, amount int); "
    with psycopg.connect(address) as connection:
        connection.execute(f"{tables}; INSERT INTO orders VALUES (7, NULL); {SqlGuard().ddl}")
    yield address
    with psycopg.connect(address) as connection:
        connection.execute("DROP TABLE orders, payouts, toban_fences")


def job_of(name: str, **step: object) -> str:
    """A manifest of a job with one step."""
    body = {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"steps": [step]}}
    return json.dumps(body)


def test_the_python_package(
    stack: Stack, admin: AdminClient, shell: Shell, toban: Callable[..., str], tmp_path: Path, shop: str
) -> None:
    token = user_token(admin, "page-sdk", "admin")
    said: dict[str, str] = {}
    for step in steps_of("sdk.md"):
        if step.file:
            (tmp_path / step.file).parent.mkdir(exist_ok=True)
            (tmp_path / step.file).write_text(step.text.replace('"dbname=shop"', repr(shop)))
        elif step.command.startswith("export TOBAN_URL="):
            shell.types(f"export TOBAN_URL=http://{stack.sites[0]} TOBAN_TOKEN={token}")
        else:
            said[step.command] = shell.types(step.command)
    assert said["python start.py"].splitlines() == ["part 0", "part 1", "part 2", "SUCCEEDED {'parts': 3}"]

    assert "2 passed" in shell.types(
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python -m pytest -q -p no:cacheprovider test_work.py"
    )
    report = job_of(
        "page-report",
        type="python",
        callable="shop.report:make",
        python_path=[str(tmp_path)],
        interpreter=sys.executable,
    )
    paying = job_of("page-pay", argv=[sys.executable, str(tmp_path / "pay.py")])
    [worked] = [step.text for step in steps_of("external-workers.md") if step.file == "video.yaml"]
    for number, manifest in enumerate((report, paying, worked)):
        (tmp_path / f"job-{number}.yaml").write_text(manifest)
        shell.types(f"toban apply -f job-{number}.yaml")
    shell.types("toban run start page-report -p day=2026-11-21 --wait")
    shell.types("toban run start page-pay --wait")
    shell.types("python pay_order.py")
    shell.types("python transcode.py >transcode.log 2>&1 &")
    shell.types("toban run start video -p in=a.mov --wait")
    results = {run.job: json.loads(run.result_json) for run in admin.runs() if run.result_json}
    assert results["page-report"] == {"day": "2026-11-21", "rows": 3, "attempt": 1}
    assert results["video"] == {"out": "a.mp4"}
    with psycopg.connect(shop) as connection:
        assert connection.execute("SELECT * FROM payouts").fetchall() == [("ada", 100)]
        assert connection.execute("SELECT count(*) FROM orders WHERE paid_at IS NOT NULL").fetchone() == (1,)
    assert any("order-7" in line for line in toban("event", "list").splitlines())


def test_the_manifests_that_help_to_choose(admin: AdminClient, toban: Callable[..., str], tmp_path: Path) -> None:
    page = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
    manifests = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "choosing.yaml").write_text("---\n".join(manifests))
    try:
        toban("apply", "-f", str(tmp_path / "choosing.yaml"))
        # The others need an engine, a cluster, a project, a worker or another host.
        for name in ("command", "python", "warm", "nightly", "limits"):
            toban("run", "start", f"choose-{name}", "--wait")
        toban("event", "emit", "order.paid", "--payload", '{"order": {"id": 7, "total": 120}}')
        admin.until(lambda: [one.state for one in admin.runs(job="choose-invoice")] == ["SUCCEEDED"], of="the invoice")
    finally:
        toban("schedule", "remove", "choose-nightly-at-three")
        toban("trigger", "remove", "choose-invoice-when-paid")
