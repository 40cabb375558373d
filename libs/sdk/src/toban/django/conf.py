"""The setting TOBAN of a Django project, and the client that it describes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from toban.client import Client, Job, Target
from toban.declaring import keys

KEYS = (
    "CA_FILE",
    "EMIT",
    "INTERPRETER",
    "JOB",
    "PROJECT",
    "PROJECT_DIR",
    "RETRY_SECONDS",
    "TOKEN",
    "TOKEN_FILE",
    "URL",
)
EMIT_BY = ("rest", "database")


def options() -> Mapping[str, Any]:
    """The setting TOBAN; empty without it. Raises ImproperlyConfigured for a key or a value that cannot be."""
    given = getattr(settings, "TOBAN", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured("the setting TOBAN is a dict; see docs/django.md")
    if unknown := sorted(set(given) - set(KEYS)):
        raise ImproperlyConfigured(f"the setting TOBAN has {', '.join(unknown)}; its keys are {', '.join(KEYS)}")
    if given.get("EMIT", "rest") not in EMIT_BY:
        raise ImproperlyConfigured(f"TOBAN['EMIT'] is {given['EMIT']!r}; it is one of {', '.join(EMIT_BY)}")
    if (given.get("TOKEN") or given.get("TOKEN_FILE")) and not given.get("URL"):
        raise ImproperlyConfigured("TOBAN has a token and no address; set TOBAN['URL'] as well, or neither")
    if wrong := keys.problem(given.get("JOB", {}), keys.JOB):
        raise ImproperlyConfigured(f"TOBAN['JOB'] {wrong}")
    for name in set(given) - {"JOB", "RETRY_SECONDS"}:
        if not isinstance(given[name], str | Path | None):
            raise ImproperlyConfigured(f"TOBAN[{name!r}] is {given[name]!r}; it is a text")
    for name in ("INTERPRETER", "PROJECT_DIR"):
        check_path(f"TOBAN[{name!r}]", str(given.get(name) or ""))
    seconds = given.get("RETRY_SECONDS", 0)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
        raise ImproperlyConfigured(f"TOBAN['RETRY_SECONDS'] is {seconds!r}; it is a number of seconds, 0 or more")
    return given


def check_path(what: str, path: str) -> None:
    """Raises ImproperlyConfigured for a path that would depend on the folder of a process."""
    if path and not path.startswith("/"):
        raise ImproperlyConfigured(f"{what} is {path!r}; give an absolute path on the executors")


@cache
def client() -> Client:
    """The client of this process. Without URL in the setting it is found as by `Client()`. Raises ConfigError and ImproperlyConfigured.

    Only here the token is needed: a step that imports the settings has none.
    """
    given = options()
    target = None
    if given.get("URL"):
        target = Target(url=given["URL"], token=_token(given), ca_file=str(given.get("CA_FILE", "")))
    return Client(target, retry_seconds=float(given.get("RETRY_SECONDS", 30)))


# Connections must not be shared with a parent process.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=client.cache_clear)


def _token(given: Mapping[str, Any]) -> str:
    path = given.get("TOKEN_FILE")
    try:
        found = given.get("TOKEN") or (Path(path).read_text() if path else os.environ.get("TOBAN_TOKEN", ""))
    except (OSError, ValueError) as error:
        raise ImproperlyConfigured(f"TOBAN['TOKEN_FILE'] cannot be read: {error}") from None
    if not found:
        raise ImproperlyConfigured(
            "TOBAN['URL'] is set without a token; set the variable TOBAN_TOKEN, TOBAN['TOKEN_FILE'] or TOBAN['TOKEN']"
        )
    return str(found).strip()


def settings_module() -> str:
    """The settings module of this process. Raises ImproperlyConfigured for settings that were configured in code."""
    name = os.environ.get("DJANGO_SETTINGS_MODULE", "")
    if not name:
        raise ImproperlyConfigured("DJANGO_SETTINGS_MODULE is not set, and a step needs it; start this by manage.py")
    return name


def project_name() -> str:
    """Which of the jobs on the site belong to this project: TOBAN['PROJECT'], else the package of the settings."""
    return str(options().get("PROJECT") or settings_module().partition(".")[0])


def own_jobs() -> Iterator[Job]:
    """The jobs of this project on the site, by name."""
    cursor = None
    while cursor != "":
        page = client().call("GET", "/jobs", label={keys.LABEL: project_name()}, cursor=cursor)
        yield from map(Job.from_json, page["jobs"])
        cursor = str(page.get("next_cursor") or "")


def program_dir() -> Path:
    """The folder of the started manage.py. Raises ImproperlyConfigured."""
    folder = Path(sys.argv[0]).parent.resolve()
    if not (folder / "manage.py").is_file():
        raise ImproperlyConfigured(
            f"there is no manage.py in {folder}; start this by manage.py, or set TOBAN['PROJECT_DIR'] to its folder on the executors"
        )
    return folder
