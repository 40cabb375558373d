"""The package `toban` before a whole stack: its first page works as written, and its clients do what they promise."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toban import errors
from toban.client import AsyncClient, Client, JobManifest, StartedRun, Target
from toban.testing import FakeClient
from toban_runtime.clock import SystemClock
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.accounts import user_token
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, executor_name

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sdk.md"
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def target_of(stack: Stack, admin: AdminClient, name: str, role: str) -> Target:
    """The site, with a token of a new user with this role."""
    return Target(url=f"http://{stack.sites[0]}", token=user_token(admin, f"sdk-{name}", role))


@pytest.fixture(scope="module")
def on_the_first_page(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Target]:
    """A folder with the programs of the page, and where they run."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
    with admin_of(stack) as admin:
        return folder, target_of(stack, admin, "page", "admin")


def start(folder: Path, target: Target) -> None:
    given = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
    given |= {"TOBAN_URL": target.url, "TOBAN_TOKEN": target.token}
    command = [sys.executable, "start.py"]
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["part 0", "part 1", "part 2", "SUCCEEDED {'parts': 3}"]


def test_the_first_page_works_as_written(admin: AdminClient, on_the_first_page: tuple[Path, Target]) -> None:
    for _ in range(2):
        start(*on_the_first_page)
    assert len(list(admin.runs(job="count-parts"))) == 1, "the key has a run"


@pytest.mark.long
def test_a_program_survives_a_killed_executor(
    stack: Stack, admin: AdminClient, on_the_first_page: tuple[Path, Target], whole_afterwards: None
) -> None:
    # It applies the job.
    start(*on_the_first_page)
    with Client(on_the_first_page[1]) as client:
        run_id = client.runs.start("count-parts", {"parts": 5000, "seconds": 0.2}).run_id

        def parts() -> list[int]:
            return [int(line.text.split()[1]) for line in client.runs.logs(run_id)]

        assert wait_until(lambda: len(parts()) >= 3, 60)
        first = client.runs.get(run_id).raw["worker_id"]
        stack.kill(executor_name(stack, admin, first), signal.SIGKILL)
        assert wait_until(lambda: client.runs.get(run_id).raw["worker_id"] not in (0, first), 90)
        seen = max(parts())
        assert wait_until(lambda: max(parts()) > seen, 60)
        client.runs.cancel(run_id, reason="seen enough")
        ended = client.runs.wait(run_id, timeout=60)
        assert (ended.state, ended.cancel_reason) == ("CANCELED", "seen enough")
        # The second attempt begins at a checkpoint; at most the part that was under way is done again.
        assert parts().count(0) == 1 and parts() == sorted(parts())


MANIFESTS: list[dict[str, Any]] = [
    {
        "apiVersion": "toban/v1",
        "kind": "Job",
        "metadata": {"name": "greet", "labels": {"team": "ops"}},
        "spec": {"steps": [{"argv": ["/bin/echo", "hello"]}], "timeout_seconds": 60},
    },
    {
        "apiVersion": "toban/v1",
        "kind": "Schedule",
        "metadata": {"name": "greet-daily"},
        "spec": {"job": "greet", "cron": "0 3 * * *"},
    },
    {
        "apiVersion": "toban/v1",
        "kind": "EventTrigger",
        "metadata": {"name": "greet-on-arrival", "description": "says hello"},
        "spec": {"job": "greet", "event_type": "sdk.arrived"},
    },
]


QUIET: JobManifest = {
    "apiVersion": "toban/v1",
    "kind": "Job",
    "metadata": {"name": "quiet"},
    "spec": {"steps": [{"argv": ["true"]}], "retry": {"from": "failed_step", "max_retries": 1}},
    "expect_version": 0,
}


def test_every_method_of_both_clients(stack: Stack, admin: AdminClient, toban: Callable[..., str]) -> None:
    target = target_of(stack, admin, "all", "admin")
    with Client(target) as client:
        use_definitions(client)
        use_runs(client)
        use_events(client)
        refuse(client)
        viewer = target_of(stack, admin, "viewer", "viewer")
        with Client(viewer) as reader, pytest.raises(errors.AccessError) as caught:
            reader.runs.start("greet")
        assert caught.value.code == "PERMISSION_DENIED" and caught.value.request_id
    asyncio.run(use_async(target))
    toban("schedule", "delete", "greet-daily")


def test_a_client_in_memory_answers_as_the_site_does(stack: Stack, admin: AdminClient) -> None:
    with Client(target_of(stack, admin, "memory", "admin")) as client:
        client.apply([QUIET, {**QUIET, "metadata": {"name": "quiet-too"}}])
        tomorrow = SystemClock().wall() + timedelta(days=1)
        fake = FakeClient("quiet", "quiet-too")
        assert starts_of(client, tomorrow) == starts_of(fake, tomorrow)
        assert seen_of(client, tomorrow) == seen_of(fake, tomorrow)


def starts_of(client: Client, later: datetime) -> list[Any]:
    """What becomes of starts that differ in one value: whether a run was made, or what the error is."""

    def tried(call: Callable[..., Any], *given: Any, **more: Any) -> Any:
        try:
            made = call(*given, **more)
        except errors.TobanError as error:
            return type(error).__name__, error.code, error.status
        return [one.created for one in made] if isinstance(made, list) else made.created

    starts: list[dict[str, Any]] = [
        *({"priority": priority} for priority in (99_999, -99_999, 1 << 31, -(1 << 31))),
        {"scope": "user", "scope_id": "7"},
        *({"scope": scope} for scope in ("team", "much-too-long")),
        *({"scope_id": text} for text in ("x" * 200, "x" * 201, "a\0b")),
        *({"scheduled_for": later + timedelta(days=days)} for days in (-2, 400)),
        *({"idempotency_key": key} for key in ("k" * 180, "k" * 181, "two words")),
    ]
    seen = [(one, tried(client.runs.start, "quiet", **{"scheduled_for": later, **one})) for one in starts]
    for job in ("quiet", "quiet-too", "quiet", "quiet-too"):
        key = {"scheduled_for": later, "idempotency_key": "of-each-job"}
        seen.append(({"job": job}, tried(client.runs.start, job, **key)))
    many: list[dict[str, Any]] = [{"idempotency_key": "k" * 200}, {"idempotency_key": "k" * 201}, {"priority": 1 << 31}]
    seen += [(one, tried(client.runs.start_many, [{"job": "quiet", "scheduled_for": later, **one}])) for one in many]
    return [*seen, tried(client.runs.start_many, [])]


def seen_of(client: Client, later: datetime) -> list[Any]:
    """What the tests of a program may rely on."""

    def refusal(call: Callable[[], object]) -> tuple[str, str, int]:
        with pytest.raises(errors.TobanError) as caught:
            call()
        return type(caught.value).__name__, caught.value.code, caught.value.status

    def start(payload: dict[str, Any]) -> StartedRun:
        return client.runs.start("quiet", payload, idempotency_key="memory", scheduled_for=later)

    first, again = start({"n": [1, "é"]}), start({"n": [1, "é"]})
    run = client.runs.get(first.run_id)
    seen: list[Any] = [first.created, again.created, again.run_id == first.run_id]
    seen += [run.job, run.state, run.origin, run.payload, run.scheduled_for, run.idempotency_key, run.result]
    seen += [refusal(lambda: start({"n": 2})), refusal(lambda: client.runs.start("no-such-job"))]
    seen += [refusal(lambda: client.runs.start("quiet", {"n": "x" * 33_000}))]
    seen += [refusal(lambda: client.runs.get(10**9)), refusal(lambda: client.runs.cancel(10**9))]
    stopped = client.runs.cancel(first.run_id, reason="not needed")
    seen += [
        stopped.state,
        stopped.cancel_reason,
        stopped.reason,
        stopped.error_summary,
        client.runs.wait(first.run_id).state,
    ]
    seen += [refusal(lambda: client.runs.cancel(first.run_id))]
    for more in ({"state": "PENDING"}, {"state": "CANCELED"}, {}):
        listed = [[one.id for one in client.runs.list(job="quiet", ahead=ahead, **more)] for ahead in (False, True)]
        seen.append([[one == first.run_id for one in ids] for ids in listed])
    paid = [
        client.events.emit("memory.paid", {"n": number}, dedupe_key=key)
        for number, key in ((1, "a"), (2, "a"), (3, ""))
    ]
    seen += [[one.duplicate for one in paid], paid[0].event_id == paid[1].event_id]
    seen += [[(one.payload, one.dedupe_key) for one in client.events.list(event_type="memory.paid")]]
    seen += [refusal(lambda: client.events.emit("no type"))]
    return seen


def use_definitions(client: Client) -> None:
    planned = client.apply(MANIFESTS, dry_run=True)
    assert [(one.kind, one.name, one.action) for one in planned] == [
        ("Job", "greet", "created"),
        ("Schedule", "greet-daily", "created"),
        ("EventTrigger", "greet-on-arrival", "created"),
    ]
    assert "greet" not in [job.name for job in client.jobs.list()]
    assert [one.action for one in client.apply(MANIFESTS)] == ["created"] * 3
    assert [one.action for one in client.apply(MANIFESTS)] == ["unchanged"] * 3
    read = client.jobs.get("greet")
    assert read.spec["timeout_seconds"] == 60
    stored = [read, client.schedules.get("greet-daily"), client.triggers.get("greet-on-arrival")]
    assert [one.action for one in client.apply(one.manifest for one in stored)] == ["unchanged"] * 3
    assert [one.name for one in client.triggers.list(job="greet")] == ["greet-on-arrival"]
    assert [job.name for job in client.jobs.list()].count("greet") == 1
    [schedule] = client.schedules.list(job="greet")
    assert schedule.next_run_at is not None and schedule.rule
    paused = client.schedules.pause("greet-daily", reason="holiday")
    assert (paused.status, paused.status_reason) == ("paused", "holiday")
    assert client.schedules.resume("greet-daily").status == "active"
    assert client.schedules.get("greet-daily").version > schedule.version


def use_runs(client: Client) -> None:
    first = client.runs.start("greet", idempotency_key="k")
    again = client.runs.start("greet", idempotency_key="k")
    assert (first.created, again.created, again.run_id) == (True, False, first.run_id)
    run = client.runs.wait(first.run_id, timeout=60).check()
    assert run.idempotency_key == "k" and run.exit_code == 0 and run.finished_at is not None
    assert [line.text for line in client.runs.follow(run.id)] == ["hello"]
    [line] = client.runs.logs(run.id)
    assert line.stream and list(client.runs.follow(run.id, after=line.position)) == []
    for _ in range(3):
        client.runs.start("greet")
    found = list(client.runs.list(job="greet", label={"team": "ops"}, limit=0))
    assert len(found) == 4 and len(list(client.runs.list(limit=2))) == 2
    ended = [client.runs.wait(one.id, timeout=60).state for one in found]
    assert ended == ["SUCCEEDED"] * 4
    assert [one.id for one in client.runs.list(job="greet", state="FAILED")] == []


def use_events(client: Client) -> None:
    first = client.events.emit("sdk.paid", {"id": 7}, dedupe_key="order-7")
    again = client.events.emit("sdk.paid", {"id": 7}, dedupe_key="order-7")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert wait_until(lambda: all(one.outcome for one in client.events.list(event_type="sdk.paid")), 30)
    outcomes = {one.id: one.outcome for one in client.events.list(event_type="sdk.paid")}
    assert outcomes[first.event_id] == "no_trigger"


def refuse(client: Client) -> None:
    with pytest.raises(errors.NotFoundError) as missing:
        client.runs.start("no-such-job")
    assert missing.value.code == "JOB_NOT_FOUND"
    wrong = {**MANIFESTS[0], "spec": {"stepz": []}}
    with pytest.raises(errors.InvalidRequestError) as invalid:
        client.apply([wrong])
    assert invalid.value.code == "MANIFEST_INVALID" and invalid.value.mistakes[0].where.startswith("manifests.0")
    [done] = client.runs.list(job="greet", limit=1)
    with pytest.raises(errors.ConflictError):
        client.runs.cancel(done.id)
    with pytest.raises(errors.ConflictError):
        client.apply([{**MANIFESTS[0], "expect_version": 9}])
    assert client.call("GET", "/executors")["executors"]


async def use_async(target: Target) -> None:
    async with AsyncClient(target) as client:
        started = await asyncio.gather(*(client.runs.start("greet") for _ in range(5)))
        runs = await asyncio.gather(*(client.runs.wait(one.run_id, timeout=60) for one in started))
        assert [run.check().state for run in runs] == ["SUCCEEDED"] * 5
        assert [line.text async for line in client.runs.follow(runs[0].id)] == ["hello"]
        assert [line.text async for line in client.runs.logs(runs[0].id)] == ["hello"]
        assert len([run async for run in client.runs.list(job="greet", limit=0)]) == 9
        with pytest.raises(errors.NotFoundError):
            await client.jobs.get("absent")
