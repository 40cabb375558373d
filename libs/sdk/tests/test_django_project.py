"""The example project without a site: the settings of docs/django.md, and what is refused before anything is applied."""

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "django-project"
PAGE = (ROOT / "docs" / "django.md").read_text(encoding="utf-8")
BLOCKS = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "TOBAN = " in block]
PRINT = "from django.conf import settings as s; print(s.TOBAN['PROJECT'], s.SECRET_KEY)"


class Project:
    """A copy of the example, whose commands start in an environment that has nothing, as the steps of an executor do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__", "db.sqlite3"))
        self.settings, self.jobs = self.folder / "bookshop/settings.py", self.folder / "books/toban_jobs.py"

    def manage(self, *words: str, program: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
        argv = [sys.executable, program or str(self.folder / "manage.py"), *words]
        given = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.folder), **environment}
        return subprocess.run(argv, env=given, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_settings_of_the_page_work_in_a_command(project: Project, tmp_path: Path, number: int) -> None:
    """Without the variables of the person who wrote them; secrets are files."""
    # The example has the app.
    block = BLOCKS[number].replace('INSTALLED_APPS += ["toban.django"]\n', "")
    project.settings.write_text(f"{project.settings.read_text()}\n{block}")
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    files = {name: str(secret) for name in re.findall(r'"file_env": "(\w+)"', block)}
    shown = project.manage("shell", "-v", "0", "-c", PRINT, **files)
    key = "from a file" if files else "an example signs nothing of value"
    assert shown.stdout == f"shop {key}\n", shown.stderr
    assert project.manage("check", **files).returncode == 0


def test_a_site_without_a_token_is_named_when_it_is_called(project: Project) -> None:
    project.settings.write_text(f"{project.settings.read_text()}\nTOBAN = {{'URL': 'https://toban.example.com'}}")
    assert project.manage("check").returncode == 0
    refused = project.manage("toban_sync")
    assert refused.stderr.startswith("CommandError: TOBAN['URL'] is set without a token; set the variable TOBAN_TOKEN")


def test_what_can_never_run_is_refused(project: Project) -> None:
    project.jobs.write_text(
        "from toban.django import command_job\n"
        "command_job('send_reminder')\n"
        "command_job('migrate', payload={'dayz': 3})\n"
        "command_job('flush', trigger={'event_type': 'a', 'payload': {'x': 1}})\n"
        "command_job('loaddata', cron='@daily')\n"
        "command_job('loaddata', name='a', cron='@daily', schedule={'payload': {'args': ['a']}})\n"
        "command_job('loaddata', name='b', daily_at='02:30', args=['a'])\n"
        "command_job('loaddata', name='c')\n"
        "command_job('check', cron='@daily')\n"
    )
    wanted = (
        "command 'send_reminder': no installed app has this command; did you mean 'send_reminders'?",
        "command 'migrate': payload has 'dayz'; the command takes app_label, ",
        "command 'flush': the payload of `trigger` has 'x'; the command takes ",
        "command 'loaddata': the schedule starts it without 'args', which it requires; add to `payload`",
    )
    synced, checked = project.manage("toban_sync"), project.manage("check")
    assert (synced.returncode, checked.returncode) == (1, 1)
    assert len(synced.stderr.splitlines()) == len(wanted), synced.stderr
    assert synced.stderr.startswith("CommandError: ") and checked.stderr.count("toban.E002") == len(wanted)
    for message in wanted:
        assert message in synced.stderr and message in checked.stderr


@pytest.mark.skipif(any(map(find_spec, ("django.tasks", "django_tasks"))), reason="the packages here have tasks")
def test_tasks_that_this_django_does_not_have_are_refused(project: Project) -> None:
    backend = "toban.django.tasks.TobanBackend"
    project.settings.write_text(f"{project.settings.read_text()}\nTASKS = {{'default': {{'BACKEND': '{backend}'}}}}\n")
    synced, checked = project.manage("toban_sync"), project.manage("check")
    wanted = f"TASKS['default'] names {backend}: Django before 6.0 has no tasks; install the package django-tasks"
    assert synced.stderr.startswith(f"CommandError: {wanted}"), synced.stderr
    assert f"(toban.E002) {wanted}" in checked.stderr


def test_a_declaration_that_cannot_be_is_one_line(project: Project) -> None:
    project.jobs.write_text("from toban.django import command_job\ncommand_job('migrate', timezone='UTC')\n")
    [line] = project.manage("toban_sync").stderr.splitlines()
    assert line.startswith("CommandError: command 'migrate' has keys of a schedule without a rule")


def test_a_sync_without_manage_py_names_the_remedy(project: Project) -> None:
    admin = str(Path(sys.executable).with_name("django-admin"))
    given = {"DJANGO_SETTINGS_MODULE": "bookshop.settings", "PYTHONPATH": str(project.folder)}
    refused = project.manage("toban_sync", program=admin, **given)
    assert refused.stderr.startswith("CommandError: there is no manage.py in"), refused.stderr


# The columns that are read, fewer than recent versions of django-celery-beat have.
TABLES = r"""
from django.db import connection as c
with c.cursor() as cursor:
    for statement in (
        "CREATE TABLE django_celery_beat_crontabschedule (id, minute, hour, day_of_month, month_of_year, day_of_week, timezone)",
        "INSERT INTO django_celery_beat_crontabschedule VALUES (1, '0', '22-2', '*', '*', '*', 'Asia/Tokyo')",
        "CREATE TABLE django_celery_beat_intervalschedule (id, every, period)",
        "INSERT INTO django_celery_beat_intervalschedule VALUES (4, 5, 'seconds')",
        "CREATE TABLE django_celery_beat_periodictask (id, name, task, crontab_id, interval_id, args, kwargs, enabled, expires)",
        "INSERT INTO django_celery_beat_periodictask VALUES (1, 'nightly', 'books.count', 1, NULL, '[]', '{\"shelves\": 2}', 1,"
        " '2199-01-01 00:00:00')",
        "INSERT INTO django_celery_beat_periodictask VALUES (2, 'lost', 'books.lost', NULL, NULL, '[]', '{}', 0, NULL)",
    ):
        cursor.execute(statement)
"""
# In place of Celery: what the commands use of it.
CELERY = """
class Task:
    def __init__(self, work):
        self.work = work
        self.app = type("App", (), {"conf": type("Conf", (), {})()})()

    def apply(self, args, kwargs, throw):
        assert throw is False and self.app.conf.task_eager_propagates is False
        value = self.work(*args, **kwargs)
        return type("Result", (), {"get": lambda _: value})()


class Loader:
    def import_default_modules(self):
        current_app.tasks["books.count"] = Task(lambda shelves: {"books": 40 * shelves})
        current_app.tasks["books.none"] = Task(lambda: None)
        current_app.tasks["books.object"] = Task(object)


class current_app:
    tasks = {}
    loader = Loader()
"""


def test_periodic_tasks_of_celery_beat_become_declarations(project: Project) -> None:
    (project.folder / "celery.py").write_text(CELERY)
    made = project.manage("shell", "-v", "0", "-c", TABLES)
    assert made.returncode == 0, made.stderr
    done = project.manage("toban_import_celery_beat")
    assert done.returncode == 65, done.stderr
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        'row 1 "nightly", task "books.count": job nightly, cron 0 22,23,0,1,2 * * * Asia/Tokyo',
        "  expires: 2199-01-01T00:00:00+00:00, no slot from then on",
    ]
    assert 'row 2 "lost", task "books.lost": job lost, no schedule' in lines
    assert lines[-1] == "CommandError: 1 rows could not be carried over as they are; see the lines above"
    project.jobs.write_text(done.stdout)
    assert project.manage("check").returncode == 0


def test_a_database_without_celery_beat_is_named(project: Project) -> None:
    done = project.manage("toban_import_celery_beat")
    assert done.stderr.startswith("CommandError: the database 'default' has no table django_celery_beat_periodictask")
    assert not done.stdout


def test_a_task_of_celery_is_run_by_its_name(project: Project) -> None:
    assert "has no Celery; install it" in project.manage("toban_celery_task", "books.count").stderr
    (project.folder / "celery.py").write_text(CELERY)
    given = ("--task-kwargs", '{"shelves": 2}')
    assert project.manage("toban_celery_task", "books.count", *given).stdout == '{"books": 80}\n'
    assert project.manage("toban_celery_task", "books.none").stdout == ""
    kept = project.manage("toban_celery_task", "books.object")
    assert kept.returncode == 0 and "is not the result of the run" in kept.stderr
    missing = project.manage("toban_celery_task", "books.counts")
    assert missing.stderr.startswith(
        "CommandError: the Celery app has no task 'books.counts'; did you mean 'books.count'?"
    )
    assert (
        "--task-kwargs must be a JSON object"
        in project.manage("toban_celery_task", "books.count", "--task-kwargs", "[]").stderr
    )
