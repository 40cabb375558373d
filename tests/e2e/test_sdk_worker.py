"""An external worker of the package `toban` before a whole stack: every way in which a step ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from toban.client import Client, Target
from toban.worker import Step, StepFailedError, Worker
from toban_stack.stack import Stack
from toban_stack.wait import wait_until
from toban_testing.accounts import user_token
from toban_testing.stack_fixtures import admin_of

pytestmark = pytest.mark.e2e
SECONDS = 60.0


@pytest.fixture(scope="module")
def target(stack: Stack) -> Target:
    """The site, with the token of an operator; a job for each task below. No executor has a part in them."""
    with admin_of(stack) as admin:
        for name in ("ends", "waits"):
            steps = [{"id": "only", "type": "external", "worker_type": name, "lock_ttl_seconds": 30}]
            retry = {"max_attempts": 2, "backoff_seconds": [0]}
            spec = {"steps": steps, "timeout_seconds": 120, "retry": retry, "logs": {"redact": ["password"]}}
            admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
        return Target(url=f"http://{stack.sites[0]}", token=user_token(admin, "sdk-worker", "operator"))


def test_every_end_of_a_step(target: Target) -> None:
    with Client(target) as client:
        worker, release = Worker(target), threading.Event()
        fences: list[int] = []

        @worker.task("ends", concurrency=4)
        def end(step: Step) -> dict[str, Any]:
            fences.append(step.fence)
            step.progress(40, "half way")
            how = step.payload["how"]
            if how == "refuse":
                raise StepFailedError("no codec", retryable=False)
            if how == "second" and step.attempt == 1:
                raise ValueError("first try")
            return {"how": how, "attempt": step.attempt}

        @worker.task("waits")
        async def wait(step: Step) -> None:
            started.set()
            while not release.is_set():
                step.check()
                await asyncio.sleep(0.05)

        started = threading.Event()
        serving = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
        serving.start()
        try:
            runs = {how: client.runs.start("ends", {"how": how}).run_id for how in ("well", "refuse", "second")}
            ended = {how: client.runs.wait(run_id, timeout=SECONDS) for how, run_id in runs.items()}
            assert ended["well"].check().result == {"how": "well", "attempt": 1}
            assert ended["well"].progress["summary"] == "half way"
            assert (ended["refuse"].state, ended["refuse"].error_summary) == ("FAILED", "no codec")
            assert ended["second"].check().result == {"how": "second", "attempt": 2}
            assert len(set(fences)) == 4

            run_id = client.runs.start("waits").run_id
            assert started.wait(SECONDS)
            client.runs.cancel(run_id)
            assert client.runs.wait(run_id, timeout=SECONDS).state == "CANCELED"

            started.clear()
            run_id = client.runs.start("waits").run_id
            assert started.wait(SECONDS)
            worker.stop()
            release.set()
            assert client.runs.wait(run_id, timeout=SECONDS).state == "SUCCEEDED", "it may end its step"
        finally:
            release.set()
            worker.stop()
            serving.join(SECONDS)
        assert not serving.is_alive()


def test_the_output_of_a_step_is_in_the_log_of_its_run(target: Target, toban: Callable[..., str]) -> None:
    with Client(target) as client:
        worker, followed = Worker(target), threading.Event()

        @worker.task("ends")
        def end(step: Step) -> None:
            print("reads", step.payload["in"])  # noqa: T201
            assert followed.wait(SECONDS)
            step.log("no such codec: hunter22", stream="stderr")
            raise StepFailedError("no codec", retryable=False)

        serving = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
        serving.start()
        try:
            run_id = client.runs.start("ends", {"in": "a.mov", "password": "hunter22"}).run_id
            assert wait_until(lambda: toban("run", "logs", str(run_id)) == "reads a.mov\n", SECONDS)
            followed.set()
            assert client.runs.wait(run_id, timeout=SECONDS).state == "FAILED"
        finally:
            followed.set()
            worker.stop()
            serving.join(SECONDS)
        found = toban("run", "logs", str(run_id), "-f")
        assert found.startswith("reads a.mov\nno such codec: ***\n") and "FAILED" in found


PROGRAM = """
from toban.worker import Step, Worker

worker = Worker()

@worker.task("ends")
def end(step: Step) -> int:
    print("begins", flush=True)
    return step.run_id

worker.run(grace_seconds=60)
print("stopped", flush=True)
"""


def test_a_signal_stops_the_process(target: Target) -> None:
    with Client(target) as client:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
        given |= {"TOBAN_URL": target.url, "TOBAN_TOKEN": target.token}
        with subprocess.Popen([sys.executable, "-c", PROGRAM], env=given, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            run_id = client.runs.start("ends", {"how": "well"}).run_id
            assert process.stdout.readline() == "begins\n"
            assert wait_until(lambda: client.runs.get(run_id).result == run_id, SECONDS)
            process.send_signal(signal.SIGTERM)
            assert process.stdout.read() == "stopped\n"
            assert process.wait(SECONDS) == 0
