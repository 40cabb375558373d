"""Steps of type python in real guards, and what jobs say of their progress on the way to a coordinator."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters import python_step_runner
from toban_proto.v1 import common_pb2, executor_pb2

SUCCEEDED, FAILED = common_pb2.OUTCOME_KIND_SUCCEEDED, common_pb2.OUTCOME_KIND_FAILED
MODULE = """
import sys, os

def make(day, dry_run=False, **more):
    print(f"made {day} {dry_run} {more} in {os.getcwd()}")
    print("::progress 50 half::")
    return {"rows": 3}

async def later(**payload):
    import asyncio
    await asyncio.sleep(0)
    print("later", payload)

async def answers(value):
    return value

def sets(value):
    print('::output {"marker": %d}::' % value)
    return {"returned": value}

def sets_by_socket(value):
    import json, os, socket
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["TOBAN_SOCKET"])
        connection.sendall(json.dumps({"op": "output", "value": value}).encode() + b"\\n")
        connection.recv(1000)
    return "returned"

def unwritable():
    return object()

def large():
    return "x" * 40_000

def fails():
    raise ValueError("the disk is full")

def leaves():
    sys.exit(3)

def needs():
    import a_package_that_is_not_there

def sees():
    print(sorted(name for name in ("grpc", "toban_executor") if __import__("importlib.util").util.find_spec(name)))

def takes_long():
    import time
    time.sleep(600)

class Shop:
    @classmethod
    def open(cls):
        print("open", __name__, sys.argv)
"""


@pytest.fixture
def world(shared_world: Any) -> Any:
    return shared_world


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a package `shop` in it."""
    package = tmp_path / "code" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "report.py").write_text(MODULE)
    (package / "shows.py").write_text("from os import system as go\n")
    (package / "broken.py").write_text("import shop.report\ndef make(:\n")
    return package.parent


def call(name: str, *folders: Path, warm: bool = False, **more: Any) -> Any:
    body = {"callable": name, "python_path": [str(path) for path in folders], "warm": warm}
    return executor_pb2.Step(type="python", body_json=json.dumps(body), **more)


async def run(world: Any, number: int, step: Any, **fields: Any) -> tuple[Any, list[str]]:
    """The outcome and the output of an attempt with this step."""
    fields = {"allow_shell": False} | fields
    [answer] = await world.start(world.order(number, steps=[step], **fields))
    assert answer.accepted, answer.message
    outcome = await world.outcome(number)
    key = world.key(number)
    await world.until(lambda: len(world.archiver.text(key)) == outcome.last_seq)
    return outcome, [line.decode() for line in world.archiver.text(key)]


async def test_the_payload_is_the_keyword_arguments(world: Any, folder: Path, tmp_path: Path) -> None:
    payload = json.dumps({"day": "2026-11-21", "dry_run": True, "deep": {"é": [1, None]}})
    outcome, lines = await run(
        world, 1, call("shop.report:make", folder), payload_json=payload, working_dir=str(tmp_path)
    )
    assert (outcome.kind, outcome.exit_code) == (SUCCEEDED, 0)
    assert lines == [
        f"made 2026-11-21 True {{'deep': {{'é': [1, None]}}}} in {tmp_path}",
        "::progress 50 half::",
    ]
    said = json.loads(outcome.progress_json)
    assert (said["percentage"], said["summary"]) == (50, "half"), "the last word comes with the outcome"
    assert json.loads(outcome.result_json) == {"rows": 3}


async def test_what_a_function_returns_is_the_result_when_it_can_be(world: Any, folder: Path) -> None:
    outcome, _ = await run(world, 1, call("shop.report:answers", folder), payload_json='{"value":[1,"é"]}')
    assert json.loads(outcome.result_json) == [1, "é"]
    for number, (name, problem) in enumerate(
        [("unwritable", "Object of type object is not JSON serializable"), ("large", "the limit is 32768")], start=2
    ):
        outcome, lines = await run(world, number, call(f"shop.report:{name}", folder))
        assert (outcome.kind, outcome.result_json) == (SUCCEEDED, "")
        assert lines[-1].startswith(f"toban: the return value of 'shop.report:{name}' is not the result of the run: ")
        assert problem in lines[-1]


async def test_what_a_function_returns_does_not_replace_what_the_job_has_set(world: Any, folder: Path) -> None:
    outcome, _ = await run(world, 1, call("shop.report:sets", folder), payload_json='{"value":1}')
    assert json.loads(outcome.result_json) == {"marker": 1}
    outcome, _ = await run(world, 2, call("shop.report:sets_by_socket", folder), payload_json='{"value":{"n":2}}')
    assert json.loads(outcome.result_json) == {"n": 2}


async def test_kinds_of_callables(world: Any, folder: Path) -> None:
    _, lines = await run(world, 1, call("shop.report:Shop.open", folder))
    assert lines == ["open shop.report ['shop.report:Shop.open']"]
    _, lines = await run(world, 2, call("shop.report:later", folder), payload_json='{"a":1}')
    assert lines == ["later {'a': 1}"]
    outcome, _ = await run(world, 3, call("shop.report:leaves", folder))
    assert (outcome.kind, outcome.exit_code) == (FAILED, 3)
    _, lines = await run(world, 4, call("shop.report:sees", folder))
    assert lines == ["[]"], "a job sees nothing of the executor's packages"


async def test_an_exception_shows_the_job_and_nothing_of_ours(world: Any, folder: Path) -> None:
    outcome, lines = await run(world, 1, call("shop.report:fails", folder))
    assert (outcome.kind, outcome.exit_code) == (FAILED, 1)
    text = "\n".join(lines)
    assert "toban" not in text and "shop/report.py" in text
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ValueError: the disk is full"


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("shop.reprt:make", {}, "there is no module 'shop.reprt' in the standard library or in python_path (%s)"),
    ("nothing:make", {}, "there is no module 'nothing' in the standard library or in python_path (%s)"),
    ("shop.report:mak", {}, "module shop.report (%s/shop/report.py) has no 'mak'; did you mean 'make'?"),
    ("shop.report:sys.path", {}, "'sys.path' in module shop.report (%s/shop/report.py) is 'list', which cannot"),
    ("shop.report:make", {"dry_run": 1}, "missing 1 required positional argument: 'day'; the payload has dry_run, it"),
    ("shop.report:fails", {"x": 1}, "got an unexpected keyword argument 'x'; the payload has x, it takes ()"),
    ("shop.report:needs", {}, "module 'a_package_that_is_not_there' is not there: packages of the executor are not"),
    ("shop.broken:make", {}, "SyntaxError: invalid syntax"),
    (
        "shop.shows:go",
        {"command": "id"},
        "'go' in module shop.shows (%s/shop/shows.py) is of module 'posix'; call it in",
    ),
]


async def test_what_is_missing_is_named(world: Any, folder: Path) -> None:
    for number, (name, payload, words) in enumerate(MISTAKES, start=1):
        outcome, lines = await run(world, number, call(name, folder), payload_json=json.dumps(payload))
        assert (outcome.kind, outcome.exit_code) == (FAILED, 1)
        assert words.replace("%s", str(folder)) in lines[-1]
        assert outcome.last_line and "python_step_runner.py" not in "\n".join(lines)


SHOWS = """
import asyncio, contextlib, dataclasses, functools, threading
import subprocess as helper
from functools import partial
from os import system as go
from pdb import run

def own(**payload):
    print("own", payload)

def wraps(function):
    @functools.wraps(function)
    def inner(**payload):
        return function(**payload)
    return inner

later = partial(partial(own, a=1), b=2)
cached = functools.lru_cache(own)
wrapped = wraps(own)
sneaky = partial(go, command="true")
hidden = wraps(helper.run)
hidden.__module__ = __name__
Popen = helper.Popen

@dataclasses.dataclass
class Job:
    name: str = ""
    def __call__(self, **payload): ...
    @staticmethod
    def still(): ...
    @classmethod
    def of(cls): ...

class Thread(threading.Thread): ...

job, words = Job(), ["a"]

@contextlib.contextmanager
def within(): yield
"""


def test_what_a_module_only_shows_is_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_that_shows.py").write_text(SHOWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    foreign = ("go", "run", "helper.run", "sneaky", "hidden", "Popen", "asyncio.run", "Thread.run", "words.append")
    for name in foreign:
        with pytest.raises(
            python_step_runner.NotCallableError, match="in a function of your own, or set `allow_shell: true`"
        ):
            python_step_runner.load(f"shop_that_shows:{name}", [], own=True)
        assert callable(python_step_runner.load(f"shop_that_shows:{name}", [], own=False))
    for name in ("own", "later", "cached", "wrapped", "Job", "job", "Job.still", "Job.of", "Thread", "within"):
        assert callable(python_step_runner.load(f"shop_that_shows:{name}", [], own=True))
    for target in ("time:sleep", "json:dumps", "random:random", "heapq:heappop", "io:open", "shutil:rmtree"):
        assert callable(python_step_runner.load(target, [], own=True))


async def test_what_a_module_shows_runs_when_shells_are_allowed(world: Any, folder: Path) -> None:
    payload = json.dumps({"command": "echo from a shell"})
    outcome, lines = await run(world, 1, call("shop.shows:go", folder), payload_json=payload, allow_shell=True)
    assert (outcome.kind, lines) == (SUCCEEDED, ["from a shell"])


@pytest.mark.seed(132)
async def test_steps_of_both_kinds_in_order_and_a_timeout(world: Any, folder: Path) -> None:
    steps = [
        executor_pb2.Step(type="command", body_json='{"argv": ["echo", "first"]}'),
        call("shop.report:takes_long", folder, timeout_seconds=1),
    ]
    await world.start(world.order(1, steps=steps))
    outcome = await world.outcome(1)
    assert outcome.kind == common_pb2.OUTCOME_KIND_TIMED_OUT
    assert "step 2" in outcome.error_summary


@pytest.mark.asyncio(loop_scope="module")
async def test_a_listed_interpreter_is_needed(world_maker: Any, folder: Path, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.write_text("echo\n")
    world = world_maker()
    await world.open(SCHEDULER_ALLOW_LIST=str(allowed), SCHEDULER_SLOTS="1")
    try:
        [answer] = await world.start(world.order(1, steps=[call("shop.report:later", folder)]))
        assert answer.refusal == "PROGRAM_NOT_ALLOWED" and "python steps need the interpreter" in answer.message
    finally:
        await world.close()


async def test_progress_goes_with_heartbeats_while_the_job_runs(world: Any) -> None:
    key = world.key(1)

    def told() -> list[tuple[float, str]]:
        held = [item for beat in list(world.coordinator.beats) for item in beat.held if item.key.run_id == 1]
        said = [json.loads(item.progress_json) for item in held if item.progress_json]
        return [(one["percentage"], one["summary"]) for one in said]

    script = (
        "echo '::progress 10 begun::'; echo '::progress 120::'; read line < %s; echo '::progress 90.5 nearly::' >&2; "
    )
    script += "echo '::progress 80::'; read line < %s; echo '::progress 100 done::'"
    gates = [world.tmp / "gate-1", world.tmp / "gate-2"]
    for gate in gates:
        os.mkfifo(gate)
    await world.start(world.order(1, "sh", "-c", script % tuple(gates)))
    await world.until(told)
    beats = len(world.coordinator.beats)
    await world.until(lambda: len(world.coordinator.beats) > beats + 1)
    assert told() == [(10, "begun")], "told once, not with each heartbeat"
    gates[0].write_text("go\n")
    await world.until(lambda: len(told()) > 1)
    assert told() == [(10, "begun"), (80, "")]
    gates[1].write_text("go\n")
    outcome = await world.outcome(1)
    assert json.loads(outcome.progress_json)["percentage"] == 100
    await world.until(lambda: len(world.archiver.text(key)) == outcome.last_seq)
    assert b"::progress 100 done::" in world.archiver.text(key), "markers stay in the log"


async def test_progress_is_told_again_when_no_coordinator_answered(world: Any) -> None:
    coordinator, refused = world.coordinator, []

    async def refuse() -> None:
        refused.append(1)
        raise TobanError(ErrorCode.UNAVAILABLE, "silent")

    coordinator._maybe_silent = refuse
    await world.start(world.order(1, "sh", "-c", "echo '::progress 10 begun::'; sleep 60"))
    await world.until(lambda: world.archiver.text(world.key(1)))
    seen = len(refused)
    await world.until(lambda: len(refused) > seen + 2)
    del coordinator._maybe_silent
    await world.until(lambda: [item for beat in coordinator.beats for item in beat.held if item.progress_json])
    await world.cancel(1, grace=1)


async def test_a_warm_step_by_an_order(world: Any, folder: Path) -> None:
    """Each is a fork of the same zygote: the second one goes to the slot that has it. What it returns is the result, as of a cold one."""
    (folder / "shop" / "pids.py").write_text(
        "import os\nBY = os.getpid()\n\n\ndef show():\n    print(BY, os.getpid())\n    return {'pid': os.getpid()}\n"
    )
    shown = []
    for number in (1, 2):
        outcome, lines = await run(world, number, call("shop.pids:show", folder, warm=True))
        assert (outcome.kind, outcome.exit_code) == (SUCCEEDED, 0)
        shown.append([int(pid) for pid in lines[-1].split()])
        assert json.loads(outcome.result_json) == {"pid": shown[-1][1]}
    (first, own), (second, other) = shown
    assert first == second and len({first, own, other}) == 3
