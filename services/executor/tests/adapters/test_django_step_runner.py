"""Steps of type django with a real project (examples/shop), cold and from a zygote, in real guards."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from toban_executor.adapters.step_commands import step_order
from toban_executor.decide.guard_types import AttemptStart, FreezeTurn, Kill
from toban_executor.decide.models import AttemptEnd
from toban_executor.guard import guard_state
from toban_executor.guard.freezer import thread_states
from toban_executor.guard.process_tree import children, descendants, slot_of, start_time
from toban_proto.v1 import executor_pb2

SHOP = Path(__file__).parents[4] / "examples" / "shop"
COMMANDS = {
    "waits": """
        def handle(self, **options):
            import os, time
            self.stdout.write("ready", ending="\\n")
            while True:
                with open(os.environ["OUT"], "a") as file:
                    file.write("x")
                time.sleep(0.01)
    """,
    "options": """
        def add_arguments(self, parser):
            import argparse
            parser.add_argument("--tag", action="append")
            parser.add_argument("--size", nargs=2, type=float)
            parser.add_argument("--no-input", action="store_false", dest="interactive")
            parser.add_argument("--cache", action=argparse.BooleanOptionalAction)
            parser.add_argument("--kind", choices=["a", "b"])
        def handle(self, **options):
            import json
            names = ("tag", "size", "interactive", "cache", "kind", "verbosity")
            self.stdout.write(json.dumps({name: options[name] for name in names}))
    """,
    "ends": """
        def add_arguments(self, parser):
            parser.add_argument("how")
        def handle(self, how, **options):
            import sys
            from django.core.management import CommandError
            from django.db import connection, connections
            if how == "connections":
                connection.ensure_connection()
                return "connected"
            if how == "code":
                raise CommandError("not today", returncode=9)
            if how == "exit":
                sys.exit(4)
            raise RuntimeError("broken")
    """,
    "modules": """
        def handle(self, **options):
            import os
            from django.db import connections
            from shop.loaded import BY
            open_ones = [alias for alias in connections if connections[alias].connection is not None]
            self.stdout.write(f"loaded here: {BY == os.getpid()} open: {open_ones}")
    """,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with more commands."""
    tmp_path = tmp_path_factory.mktemp("shop")
    project = tmp_path / "project"
    shutil.copytree(SHOP, project)
    settings = project / "shop/settings.py"
    # Connections to a database in memory are never closed.
    settings.write_text(settings.read_text().replace(":memory:", str(tmp_path / "db.sqlite3")))
    for name, body in COMMANDS.items():
        head = "from django.core.management.base import BaseCommand\nclass Command(BaseCommand):\n"
        (project / f"shop/management/commands/{name}.py").write_text(head + body.replace("\n        ", "\n    "))
    loads = "import os\nfrom django.db import connection\nBY = os.getpid()\nconnection.ensure_connection()\n"
    (project / "shop/loaded.py").write_text(loads)
    (project / "shop/other.py").write_text("from shop.settings import *\nprint('other settings')\n")
    return project


# For what a cold step has in common with a warm one: each command of a cold one loads Django.
COLD_LATER = pytest.mark.parametrize("shop", [pytest.param("cold", marks=pytest.mark.long), "warm"], indirect=True)


@pytest.fixture(params=["cold", "warm"])
def shop(request: pytest.FixtureRequest, shared_guard: Any, project: Path) -> "Shop":
    return Shop(shared_guard, project, warm=request.param == "warm")


class Shop:
    """Runs commands of the project in a guard with one slot."""

    def __init__(self, guard: Any, project: Path, *, warm: bool) -> None:
        self.guard = guard
        self.project = project
        self.warm = warm

    def spawn(self, command: str, payload: Any = None, *, args: tuple[str, ...] = (), **fields: Any) -> int:
        keys = {"project": str(self.project), "interpreter": sys.executable, **fields.pop("keys", {})}
        body = {"command": command, "args": args, "warm": self.warm, **keys}
        message = executor_pb2.Step(type="django", body_json=json.dumps(body))
        env = {"PATH": os.environ["PATH"], **fields.pop("env", {})}
        steps = (step_order(message, allow_shell=False),)
        self.guard.blocks.clear()
        return int(self.guard.spawn("-", steps=steps, env=env, payload_json=json.dumps(payload or {}), **fields))

    def run(self, command: str, payload: Any = None, **fields: Any) -> AttemptEnd:
        self.spawn(command, payload, **fields)
        end = self.guard.receive(AttemptEnd, seconds=30)
        assert isinstance(end, AttemptEnd)
        return end

    @property
    def text(self) -> str:
        return str(self.guard.text.decode())

    @property
    def supervisor(self) -> int:
        [pid] = [pid for pid in children(self.guard.guards.supervisor.pid) if slot_of(pid) == 0]
        return pid


@pytest.mark.seed(45)
def test_the_payload_are_the_options(shop: Shop) -> None:
    end = shop.run("count_orders", {"regions": ["north", "south"], "days": 30})
    assert (end.exit_code, end.cause) == (0, ""), shop.text
    assert "north: 300 orders in 30 days\n" in shop.text and "south: 300" in shop.text
    assert shop.run("count_orders", {"dry_run": True}, args=("--days", "2", "west")).exit_code == 0
    assert "west: 0 orders in 2 days" in shop.text
    assert shop.run("count_orders", {"dry_run": False, "days": "3"}).exit_code == 0
    assert "all: 30 orders in 3 days" in shop.text


def test_every_kind_of_option(shop: Shop) -> None:
    payload = {
        "tag": ["x", "--y"],
        "size": [-1, 2.5],
        "interactive": False,
        "cache": False,
        "kind": "b",
        "verbosity": 2,
    }
    assert shop.run("options", payload).exit_code == 0, shop.text
    assert json.loads(shop.text.splitlines()[-1]) == payload
    assert shop.run("options", {"interactive": True, "cache": True, "tag": None}).exit_code == 0
    given = json.loads(shop.text.splitlines()[-1])
    assert (given["interactive"], given["cache"], given["tag"]) == (True, True, None)


MISTAKES: list[tuple[str, dict[str, Any], dict[str, str], str]] = [
    ("count_orders", {"days": 0}, {}, "CommandError: days must be at least 1, is 0"),
    ("count_orders", {"days": "many"}, {}, "CommandError: Error: argument --days: invalid int value: 'many'"),
    ("count_orders", {"day": 1}, {}, "the payload has 'day', the command takes"),
    ("count_orders", {"dry_run": "yes"}, {}, "the payload has 'dry_run': \"yes\"; it is true or false"),
    ("options", {"kind": "c"}, {}, "invalid choice: 'c'"),
    ("options", {"size": ["--help", "1"]}, {}, "the payload has 'size': '--help'; it would be read as an option"),
    ("count_order", {}, {}, "no app of shop.settings has it; did you mean 'count_orders'?"),
    ("ends", {"how": "raise"}, {}, "RuntimeError: broken"),
    ("ends", {}, {}, "CommandError: Error: the following arguments are required: how"),
    ("count_orders", {}, {"project": "/no/where"}, "there is no folder /no/where: check `project`"),
    ("count_orders", {}, {"project": "/usr"}, "/usr/manage.py names no settings module"),
    ("count_orders", {}, {"settings": "shop.none"}, "No module named 'shop.none'"),
]


@COLD_LATER
@pytest.mark.seed(94)
def test_what_is_wrong_is_named(shop: Shop, subtests: pytest.Subtests) -> None:
    for command, payload, fields, words in MISTAKES:
        with subtests.test(words):
            end = shop.run(command, payload, keys=fields)
            assert (end.exit_code, end.cause) == (1, "")
            assert words in shop.text


@pytest.mark.seed(94)
def test_exit_codes(shop: Shop) -> None:
    assert shop.run("ends", {"how": "code"}).exit_code == 9
    assert "CommandError: not today" in shop.text
    assert shop.run("ends", {"how": "exit"}).exit_code == 4


@COLD_LATER
def test_a_fork_shares_no_connection(shop: Shop) -> None:
    """A module that is imported before the fork has opened one."""
    assert shop.run("modules", keys={"preload": ["shop.loaded"]}).exit_code == 0, shop.text
    assert f"loaded here: {not shop.warm} open: {[] if shop.warm else ['default']}" in shop.text
    assert shop.run("ends", {"how": "connections"}, keys={"preload": ["shop.loaded"]}).exit_code == 0
    assert "connected" in shop.text


def test_settings_of_the_environment(shop: Shop) -> None:
    assert shop.run("count_orders", env={"DJANGO_SETTINGS_MODULE": "shop.other"}).exit_code == 0
    assert shop.warm or "other settings" in shop.text
    assert shop.run("count_orders", keys={"settings": "shop.missing"}).exit_code == 1


@COLD_LATER
def test_kill_timeout_and_lease(shop: Shop, tmp_path: Path) -> None:
    shop.guard.end_zygotes()
    env = {"OUT": str(tmp_path / "out")}
    token = shop.spawn("waits", env=env)
    shop.guard.receive(AttemptStart)
    shop.guard.receive_text(b"ready")
    shop.guard.send(Kill(token=token, cause="cancel", reason="asked", grace=5.0))
    end = shop.guard.receive(AttemptEnd)
    assert (end.cause, end.signal) == ("cancel", signal.SIGTERM)
    assert (shop.run("waits", env=env, timeout_seconds=1).cause) == "timeout"
    end = shop.run("waits", env=env, lease=1.0)
    assert end.cause == "lease"
    left = [pid for pid in descendants(shop.supervisor) if start_time(pid)]
    assert len(left) <= shop.warm, "nothing but the zygote"


@COLD_LATER
def test_freeze(shop: Shop, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert shop.run("count_orders", env={"OUT": str(out)}).exit_code == 0
    token = shop.spawn("waits", env={"OUT": str(out)}, on_lease_loss="freeze", lease=3.0)
    shop.guard.receive_text(b"ready")
    assert shop.guard.receive(FreezeTurn).frozen
    # The kernel's word for it.
    events = Path(guard_state.read_all(shop.guard.state / "guards")[0].cgroup or tmp_path) / "slot-0" / "cgroup.events"
    if events.exists():
        assert "frozen 1" in events.read_text()
    else:
        assert all(thread_states(pid) <= set(b"TtZX") for pid in descendants(shop.supervisor))
    shop.guard.send(Kill(token=token, cause="cancel", reason="", grace=0.0))
    assert shop.guard.receive(AttemptEnd).cause == "cancel"
