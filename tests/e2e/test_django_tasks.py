"""`TobanBackend` with Django 6, and with Django 5.2 and the package django-tasks, before a whole stack; and the tests that Django has for backends.

Each version of Django is in an environment of its own, which is made from the package index.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from toban.client import Client, Target
from toban_stack.stack import Stack
from toban_testing.accounts import user_token
from toban_testing.stack_fixtures import admin_of

pytestmark = [pytest.mark.e2e, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).with_name("django_tasks")
# The oldest Python that Django 6 runs on.
SIX = (3, 12)


class Version(NamedTuple):
    """What is installed, and the oldest Python for it."""

    name: str
    packages: tuple[str, ...]
    python: tuple[int, int]


VERSIONS = (
    Version("django5", ("django>=5.2,<6", "django-tasks"), (3, 11)),
    Version("django6", ("django>=6,<7",), SIX),
)


def python_of(oldest: tuple[int, int]) -> str:
    """An interpreter that starts and is new enough: of PATH, or beside the one of these tests. Skips the test without one."""
    names = [f"python3.{minor}" for minor in range(oldest[1], oldest[1] + 4)]
    beside = [str(path) for name in names for path in Path(sys.base_prefix).parent.glob(f"*/bin/{name}")]
    for one in [sys.executable, *beside, *filter(None, map(shutil.which, names))]:
        code = f"import sys; sys.exit(sys.version_info < {oldest})"
        if subprocess.run([one, "-c", code], check=False, capture_output=True).returncode == 0:
            return one
    pytest.skip(f"there is no Python {oldest[0]}.{oldest[1]} or newer here, which this version of Django needs")


class Project:
    """A copy of tests/e2e/django_tasks with an environment of its own, before a stack."""

    def __init__(self, folder: Path, version: Version, target: Target, database: str) -> None:
        interpreter = python_of(version.python)
        subprocess.run([interpreter, "-m", "venv", folder / "venv"], check=True)
        self.python = folder / "venv/bin/python"
        self.pip("install", *version.packages, "psycopg[binary]")
        [site] = (folder / "venv/lib").glob("python*/site-packages")
        (site / "toban.pth").write_text(str(ROOT / "libs/sdk/src"))
        self.folder = folder / "project"
        shutil.copytree(HERE, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        # Steps have no variables of these tests.
        (self.folder / "place.py").write_text(f"NAME = {version.name!r}\nDATABASE = {database!r}\n")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
        own = {"TOBAN_URL": target.url, "TOBAN_TOKEN": target.token, "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment = {**kept, **own}

    def pip(self, *words: str) -> None:
        """Calls pip of the environment."""
        subprocess.run([self.python, "-m", "pip", "--quiet", *words], check=True, timeout=300)

    def manage(self, *words: str, settings: str = "shop.settings", code: int = 0) -> str:
        """What a command prints, on stdout and stderr."""
        argv = [str(self.python), str(self.folder / "manage.py"), *words, "--settings", settings]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, script: str, settings: str = "shop.settings") -> None:
        """Runs one of the scripts of the project, which asserts what should be."""
        assert self.manage("run_script", script, settings=settings).splitlines()[-1] == "all is as it should be"


def made(folder: Path, version: Version, stack: Stack) -> Iterator[tuple[Project, Client]]:
    with admin_of(stack) as admin:
        target = Target(url=f"http://{stack.sites[0]}", token=user_token(admin, version.name, "editor"))
    project = Project(folder, version, target, stack.endpoints().database_url)
    with Client(target) as client:
        yield project, client


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda version: version.name)
def project(
    request: pytest.FixtureRequest, stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Project, Client]]:
    yield from made(tmp_path_factory.mktemp(request.param.name), request.param, stack)


def test_tasks_run_and_have_results(project: tuple[Project, Client]) -> None:
    shop, client = project
    assert "no issues" in shop.manage("check")
    synced = shop.manage("toban_sync").splitlines()
    name = client.jobs.get(f"{shop.folder.parent.name[:7]}-tasks-mail")
    assert f"Job {name.name}: created" in synced and name.spec["timeout_seconds"] == 90 and name.spec["priority"] == 5
    shop.run("tasks_run.py")


def test_a_transaction_enqueues_when_it_commits(project: tuple[Project, Client]) -> None:
    project[0].manage("toban_sync")
    project[0].run("transactions.py")


def test_a_task_is_a_row_of_its_transaction(project: tuple[Project, Client]) -> None:
    shop, _ = project
    synced = shop.manage("toban_sync", settings="shop.by_event").splitlines()
    assert len([line for line in synced if re.fullmatch(r"EventTrigger \S+-tasks-\w+: created", line)]) == 2
    shop.run("transactions.py", settings="shop.by_event")
    shop.run("by_event.py", settings="shop.by_event")


def test_what_cannot_be_is_a_check_with_a_hint(project: tuple[Project, Client]) -> None:
    shop, _ = project
    printed = shop.manage("check", settings="shop.wrong", code=1)
    for text in (
        "toban.E003) TASKS['default'] has no queue",
        "toban.E003) TASKS['other']['QUEUES'] has 'ü'",
        "toban.E003) TASKS['other']['OPTIONS'] has JOBS",
        "toban.E003) TASKS['other']['OPTIONS']['JOB'] has 'timeout', which is no key; did you mean 'timeout_seconds'?",
        "toban.E003) TASKS['other']['OPTIONS']['QUEUE_JOBS'] has slow",
        "toban.E003) TASKS['other']['OPTIONS']['DATABASE'] is 'second'",
    ):
        assert text in printed, printed
    assert printed.count("HINT: ") == 6
    assert "CommandError: TASKS['default'] has no queue" in shop.manage("toban_sync", settings="shop.wrong", code=1)
    printed = shop.manage("check", settings="shop.without_times", code=1)
    assert "(toban.E004) A module `tasks` has a task that TASKS['default'] cannot run" in printed


def test_only_a_declared_task_is_called(project: tuple[Project, Client]) -> None:
    shop, _ = project
    for path, text in (
        ("shop.tasks.not_a_task", "'shop.tasks.not_a_task' is 'function' and no task; declare it with @task of django"),
        ("os.system", "'os.system' is 'builtin_function_or_method' and no task"),
        ("shop.tasks.gone", "the task 'shop.tasks.gone' cannot be imported"),
    ):
        assert f"CommandError: {text}" in shop.manage("toban_run_task", path, "--task-args", '["true"]', code=1)


@pytest.fixture(scope="module")
def suite(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """Django 6 with the folder tests/tasks of its source distribution, whose backends are those of toban_suite.py."""
    folder = tmp_path_factory.mktemp("suite")
    version = VERSIONS[1]._replace(name="suite")
    for project, _ in made(folder, version, stack):
        shown = subprocess.check_output([project.python, "-m", "django", "--version"], text=True).strip()
        project.pip("download", "--no-deps", "--no-binary", "django", "--dest", str(folder), f"django=={shown}")
        [archive] = folder.glob("django-*.tar.gz")
        with tarfile.open(archive) as opened:
            wanted = [one for one in opened.getmembers() if f"django-{shown}/tests/tasks/" in one.name]
            opened.extractall(folder, wanted, filter="data")
        shutil.copytree(folder / f"django-{shown}/tests/tasks", project.folder / "tasks")
        for file in (project.folder / "tasks").glob("test_*.py"):
            text = file.read_text()
            for kind, ours in (("dummy.Dummy", "Ready"), ("immediate.Immediate", "Waiting")):
                module, _, old = kind.partition(".")
                text = text.replace(f"django.tasks.backends.{module}.{old}Backend", f"toban_suite.{ours}Backend")
                text = text.replace(
                    f"from django.tasks.backends.{module} import {old}Backend",
                    f"from toban_suite import {ours}Backend as {old}Backend",
                )
            file.write_text(text)
        yield project


def test_the_tests_of_django_for_backends_pass(suite: Project) -> None:
    suite.manage("toban_sync", settings="toban_suite_settings")
    printed = suite.manage("test", "tasks", "-v", "2", settings="toban_suite_settings")
    # Whether those that are skipped count as run depends on the version of Python.
    counted: Any = re.search(r"Found (\d+) test.*\nOK \(skipped=(\d+)\)", printed, re.DOTALL)
    found, skipped = int(counted[1]), int(counted[2])
    assert found - skipped >= 60 and skipped <= 20, printed
