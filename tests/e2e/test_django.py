"""The project examples/django-project before a whole stack: what it declares is on the site, runs, and is shown; its events arrive."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban.client import Client, Target
from toban.errors import NotFoundError
from toban_stack.stack import Stack
from toban_testing.accounts import user_token
from toban_testing.stack_fixtures import admin_of

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "django-project"
PAGES = r"""
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.test import Client, override_settings

root = User.objects.create_superuser("root", password="x")
staff = User.objects.create_user("staff", is_staff=True)
client = Client()
assert client.get("/admin/toban/run/").status_code == 302
client.force_login(staff)
assert client.get("/admin/toban/run/").status_code == 403
staff.user_permissions.add(Permission.objects.get(content_type__app_label="toban", codename="view_run"))
assert client.get("/admin/toban/run/").status_code == 200
assert client.get("/admin/toban/job/").status_code == 403
client.force_login(root)
for path, text in (
    ("job/", "send-reminders"),
    ("job/count-books/change/", "It has no schedule."),
    ("job/send-reminders/change/", "Asia/Tokyo"),
    ("run/", "SUCCEEDED"),
    ("run/?state=SUCCEEDED", "count-books"),
    ("run/RUN/change/", "120 books on 3 shelves"),
    ("run/RUN/change/", '<pre>{\n  "shelves": 3\n}</pre>'.replace('"', "&quot;")),
    ("run/RUN/change/", '<pre>{\n  "books": 120\n}</pre>'.replace('"', "&quot;")),
    ("run/RUN/change/", "100 % "),
    ("run/WRONG/change/", "<td>exit code 1</td>"),
    ("", "toban/job/"),
):
    page = client.get("/admin/toban/" + path if path else "/admin/")
    assert page.status_code == 200 and text in page.content.decode(), (path, page.status_code, page.content.decode())
for path in ("job/", "run/", "run/?state=SUCCEEDED"):
    assert "of-another-project" not in client.get("/admin/toban/" + path).content.decode(), path
for path in ("run/99999/change/", "run/x/change/", "job/none/change/", "run/RUN/delete/", "run/RUN/history/", "job/add/"):
    assert client.get("/admin/toban/" + path).status_code in (403, 404), path
assert client.get("/admin/toban/job/%2E%2E/change/").status_code == 404
assert client.post("/admin/toban/run/RUN/change/", {}).status_code == 403
with override_settings(TOBAN={"NO_SUCH_KEY": 1}):
    assert [one.id for one in run_checks(tags=["toban"])] == ["toban.E001"]
print("pages are right")
"""
ORDERS = """
from django.db import transaction
from books.models import Order, place_order

place_order("Botchan")
try:
    with transaction.atomic():
        place_order("Kokoro")
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
print(list(Order.objects.values_list("title", flat=True)))
"""


# As docs/django.md: one variable of the environment, and a secret that is a file in a command.
SETTINGS = """
BRANCH = os.environ["BOOKSHOP_BRANCH"]
SECRET_KEY = Path(os.environ["SECRET_KEY_FILE"]).read_text()
TOBAN |= {
    "URL": "SITE",
    "JOB": {
        "env": {"BOOKSHOP_BRANCH": "Jimbocho"},
        "secrets": [{"name": "bookshop-key", "file_env": "SECRET_KEY_FILE"}],
    },
}
"""


class Project:
    """A copy of the example, with a database of its own, and settings that need the environment and a secret of the project."""

    def __init__(self, folder: Path, target: Target) -> None:
        self.target = target
        self.folder = folder / "project"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__", "db.sqlite3"))
        self.jobs = self.folder / "books/toban_jobs.py"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDULER_", "TOBAN_"))}
        settings = self.folder / "bookshop/settings.py"
        settings.write_text(settings.read_text() + SETTINGS.replace("SITE", target.url))
        key = folder / "key"
        key.write_text("of this machine")
        # Files of bytecode would hide a change of the same size in the same second.
        own = {"TOBAN_TOKEN": target.token, "PYTHONDONTWRITEBYTECODE": "1"}
        needed = {"BOOKSHOP_BRANCH": "here", "SECRET_KEY_FILE": str(key)}
        self.environment = {**clean, **own, **needed}

    def copy(self, folder: Path) -> "Project":
        """The same project on another machine, in effect."""
        return Project(folder, self.target)

    def manage(self, *words: str, code: int = 0) -> list[str]:
        """The lines that a command prints; of the error when `code` is not 0."""
        argv = [sys.executable, str(self.folder / "manage.py"), *words]
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return (done.stderr if code else done.stdout).splitlines()


@pytest.fixture(scope="module")
def project(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Client]]:
    with admin_of(stack) as admin:
        target = Target(url=f"http://{stack.sites[0]}", token=user_token(admin, "bookshop", "editor"))
        keeper = Target(url=target.url, token=user_token(admin, "bookshop-keeper", "admin"))
    with Client(keeper) as client:
        client.call("PUT", "/secrets/bookshop-key", {"value": "of the cluster"})
    one = Project(tmp_path_factory.mktemp("django"), target)
    one.manage("migrate", "-v", "0")
    with Client(target) as client:
        yield one, client
        for schedule in ("send-reminders", "reminders-by-hand"):
            with contextlib.suppress(NotFoundError):
                client.call("DELETE", f"/schedules/{schedule}")


@pytest.mark.seed(21)
def test_what_is_declared_is_shown_then_applied_then_unchanged(project: tuple[Project, Client], tmp_path: Path) -> None:
    shop, client = project
    shown = shop.manage("toban_sync", "--dry-run")
    assert [line for line in shown if not line.startswith("  ")] == [
        "Job count-books: would be created",
        "Job send-reminders: would be created",
        "Schedule send-reminders: would be created",
    ]
    assert any('"command": "send_reminders"' in line and line.startswith("  +") for line in shown)
    known = {job.name for job in client.jobs.list()} | {schedule.name for schedule in client.schedules.list()}
    assert not known & {"count-books", "send-reminders"}, "a dry run has changed something"
    assert "Schedule send-reminders: created" in shop.manage("toban_sync")
    schedule = client.schedules.get("send-reminders")
    assert (schedule.job, schedule.timezone, schedule.status) == ("send-reminders", "Asia/Tokyo", "active")
    assert shop.manage("toban_sync")[-1] == "nothing to change"
    elsewhere = shop.copy(tmp_path)
    *_, kept, last = elsewhere.manage("toban_sync")
    assert kept.startswith(
        f"folder {shop.folder}: as on the site, for count-books, send-reminders; here it is {elsewhere.folder}; --project-dir"
    )
    assert last == "nothing to change"


@pytest.mark.long
def test_a_change_is_shown_as_lines_and_a_mistake_changes_nothing(project: tuple[Project, Client]) -> None:
    shop, client = project
    shop.manage("toban_sync")
    before = shop.jobs.read_text()
    try:
        shop.jobs.write_text(
            before.replace("0 7 *", "30 8 *").replace('"timeout_seconds": 600', '"timeout_seconds": 60')
        )
        shown = shop.manage("toban_sync", "--dry-run")
        assert [line.strip() for line in shown if line.startswith(("  -", "  +"))] == [
            '-  "timeout_seconds": 600',
            '+  "timeout_seconds": 60',
            '-  "cron": "0 7 * * MON-FRI",',
            '+  "cron": "30 8 * * MON-FRI",',
        ]
        shop.jobs.write_text(before.replace("0 7 *", "99 8 *"))
        [error] = shop.manage("toban_sync", code=1)
        assert error.startswith("CommandError: command 'send_reminders': Schedule spec.cron: "), error
        assert client.schedules.get("send-reminders").spec["cron"].startswith("0 7")
    finally:
        shop.jobs.write_text(before)


@pytest.mark.long
def test_a_schedule_that_is_declared_no_more_is_paused_and_resumed(project: tuple[Project, Client]) -> None:
    shop, client = project
    shop.manage("toban_sync")
    before = shop.jobs.read_text()
    try:
        shop.jobs.write_text(before.replace("    cron=", "    #").replace("    timezone=", "    #"))
        assert "Schedule send-reminders: is no longer declared and stays active; --prune pauses it" in shop.manage(
            "toban_sync"
        )
        assert client.schedules.get("send-reminders").status == "active"
        spec = {"job": "send-reminders", "interval_seconds": 86_400}
        metadata = {"name": "reminders-by-hand"}
        client.apply([{"apiVersion": "toban/v1", "kind": "Schedule", "metadata": metadata, "spec": spec}])
        assert "Schedule send-reminders: paused, it is no longer declared" in shop.manage("toban_sync", "--prune")
        assert client.schedules.get("send-reminders").status == "paused"
        assert client.schedules.get("reminders-by-hand").status == "active", "a person has made it"
    finally:
        shop.jobs.write_text(before)
    assert "Schedule send-reminders: resumed, it is declared again" in shop.manage("toban_sync")
    assert client.schedules.get("send-reminders").status == "active"


def test_a_command_reports_its_progress_and_the_pages_show_it(project: tuple[Project, Client]) -> None:
    shop, client = project
    shop.manage("toban_sync")
    started = client.runs.start("count-books")
    run = client.runs.wait(started.run_id, timeout=60).check()
    assert run.result == {"books": 120}
    assert run.progress["percentage"] == 100
    # The lines arrive at the site a moment after the end of the run; following it waits for them.
    assert [line.text for line in client.runs.follow(run.id)][-1] == "120 books on 3 shelves"
    other = {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "of-another-project"}}
    client.apply({**other, "spec": {"steps": [{"argv": ["/bin/true"]}]}})
    client.runs.wait(client.runs.start("of-another-project").run_id, timeout=60).check()
    wrong = client.runs.wait(client.runs.start("count-books", {"shelves": "few"}).run_id, timeout=60)
    pages = PAGES.replace("RUN", str(run.id)).replace("WRONG", str(wrong.id))
    assert shop.manage("shell", "-v", "0", "-c", pages)[-1] == "pages are right"


def test_an_event_exists_when_its_transaction_has_committed(project: tuple[Project, Client]) -> None:
    shop, client = project
    assert shop.manage("shell", "-v", "0", "-c", ORDERS)[-1] == "['Botchan']"
    events = [(one.payload, one.dedupe_key) for one in client.events.list(event_type="order.placed")]
    assert events == [({"order": 1}, "order-1")]


@pytest.mark.long
def test_a_trigger_that_is_declared_no_more_is_disabled_and_enabled_again(project: tuple[Project, Client]) -> None:
    shop, client = project
    before = shop.jobs.read_text()
    declared = before.replace('payload={"shelves": 3}', 'payload={"shelves": 3}, trigger={"event_type": "shelf.new"}')
    try:
        shop.jobs.write_text(declared)
        assert "EventTrigger count-books: created" in shop.manage("toban_sync")
        shop.jobs.write_text(before)
        assert "EventTrigger count-books: disabled, it is no longer declared" in shop.manage("toban_sync", "--prune")
        assert client.triggers.get("count-books").enabled is False
        assert shop.manage("toban_sync")[-1] == "nothing to change"
        shop.jobs.write_text(declared)
        shown = shop.manage("toban_sync")
        assert "EventTrigger count-books: updated" in shown and '  -  "enabled": false,' in shown
    finally:
        shop.jobs.write_text(before)
        client.call("DELETE", "/triggers/count-books")


@pytest.mark.long
def test_a_site_that_cannot_be_reached_is_a_line_and_a_page_with_the_reason(project: tuple[Project, Client]) -> None:
    shop, _ = project
    settings = shop.folder / "bookshop/settings.py"
    before = settings.read_text()
    try:
        # Nothing listens on this port, which only root could take.
        away = '\nTOBAN |= {"URL": "http://127.0.0.1:1", "RETRY_SECONDS": 0}\n'
        settings.write_text(before + away)
        [error] = shop.manage("toban_sync", code=1)
        assert error.startswith("CommandError: UNAVAILABLE")
        code = (
            "from django.test import Client; from django.contrib.auth.models import User; c = Client();"
            "c.force_login(User.objects.create_superuser('away')); page = c.get('/admin/toban/job/');"
            "print(page.status_code, 'Toban cannot be read' in page.content.decode())"
        )
        assert shop.manage("shell", "-v", "0", "-c", code)[-1] == "503 True"
    finally:
        settings.write_text(before)


@pytest.mark.long
def test_the_setting_is_checked(project: tuple[Project, Client]) -> None:
    shop, _ = project
    settings = shop.folder / "bookshop/settings.py"
    before = settings.read_text()
    try:
        settings.write_text(before.replace('"PROJECT":', '"PROJEKT":'))
        assert any("the setting TOBAN has PROJEKT; its keys are" in line for line in shop.manage("check", code=1))
    finally:
        settings.write_text(before)


@pytest.mark.long
@pytest.mark.seed(2)
def test_the_executor_is_a_fresh_process_without_django(project: tuple[Project, Client], tmp_path: Path) -> None:
    """A package of that name in place of the executor shows what it is given."""
    shop, _ = project
    stand_in = tmp_path / "toban_executor"
    stand_in.mkdir()
    (stand_in / "__init__.py").touch()
    (stand_in / "__main__.py").write_text(
        "import os, sys\nprint(os.getpid(), sys.argv[1:], os.environ.get('DJANGO_SETTINGS_MODULE'), 'django' in sys.modules,"
        " os.environ['SCHEDULER_SLOTS'])\n"
    )
    given = {**shop.environment, "PYTHONPATH": str(tmp_path), "SCHEDULER_SLOTS": "3"}
    argv = [sys.executable, str(shop.folder / "manage.py"), "toban_executor", "drain"]
    process = subprocess.Popen(argv, env=given, stdout=subprocess.PIPE, text=True)
    try:
        printed, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
    assert printed.split(maxsplit=1) == [str(process.pid), "['drain'] None False 3\n"]
