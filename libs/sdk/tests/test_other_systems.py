"""The client where the calls and modules of POSIX are missing: they are removed before the package is imported."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toban_testing.scripted_site import ScriptedSite, says, scripted_site

SDK = Path(__file__).parents[1] / "src"

# What Windows does not have, of what a program could use by mistake. The standard library is loaded first: it has parts for each system.
WITHOUT_POSIX = """
import asyncio, http.client, multiprocessing, os, pathlib, select, shutil, signal, socket, ssl, subprocess, sys, time, tomllib, uuid
import django.core.management, h11
for module, names in {
    os: "fork register_at_fork getuid geteuid getgid chown fchmod killpg setsid sysconf uname sched_getaffinity",
    select: "poll epoll",
    signal: "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGCHLD SIGALRM pthread_sigmask",
    socket: "AF_UNIX SO_REUSEPORT SO_PEERCRED SCM_RIGHTS MSG_DONTWAIT",
    time: "clock_gettime CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME",
}.items():
    for name in names.split():
        vars(module).pop(name, None)
for name in ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "pty", "tty"):
    sys.modules[name] = None
"""

USE = """
import json
import toban, toban.errors, toban.events, toban.fencing, toban.worker
from toban.client import AsyncClient, Client

toban.current_job().progress(50)
with Client() as client:
    run = client.runs.get(7)
print(json.dumps([run.state, AsyncClient.__name__]))
"""


def without_posix(program: str, **environ: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SDK), **environ}
    command = [sys.executable, "-c", WITHOUT_POSIX + program]
    return subprocess.run(command, capture_output=True, text=True, env=given, check=False)


@pytest.fixture
def site() -> Iterator[ScriptedSite]:
    with scripted_site() as running:
        yield running


def test_a_client_works_without_the_calls_of_posix(site: ScriptedSite) -> None:
    site.script = [says(200, {"id": 7, "job": "hello", "state": "RUNNING"})]
    done = without_posix(USE, TOBAN_URL=site.url, TOBAN_TOKEN="toban_pat_test")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == ["RUNNING", "AsyncClient"]


def test_the_settings_of_django_do_too() -> None:
    program = "from django.conf import settings; settings.configure(); import toban.django.conf; print('there')"
    done = without_posix(program)
    assert (done.stdout, done.stderr) == ("there\n", "")


def test_the_file_of_contexts_is_not_read_there(tmp_path: Path) -> None:
    program = """
from toban.client import Client
from toban.errors import ConfigError
try:
    Client()
except ConfigError as error:
    print(error)
"""
    done = without_posix(program, HOME=str(tmp_path))
    assert "set TOBAN_URL and TOBAN_TOKEN" in done.stdout and "has no users" in done.stdout, done.stderr
