"""The setting TOBAN of a Django project, and the client that it describes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from toban.client import Client, Target

KEYS = ("CA_FILE", "EMIT", "PROJECT", "PROJECT_DIR", "RETRY_SECONDS", "TOKEN", "URL")
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
    if bool(given.get("URL")) != bool(given.get("TOKEN")):
        raise ImproperlyConfigured("TOBAN['URL'] and TOBAN['TOKEN'] belong together; set both, or neither")
    return given


@cache
def client() -> Client:
    """The client of this process. Without URL and TOKEN in the setting it is found as by `Client()`. Raises ConfigError."""
    given = options()
    target = None
    if given.get("URL"):
        target = Target(url=given["URL"], token=given["TOKEN"], ca_file=str(given.get("CA_FILE", "")))
    return Client(target, retry_seconds=float(given.get("RETRY_SECONDS", 30)))


# Connections must not be shared with a parent process.
os.register_at_fork(after_in_child=client.cache_clear)


def settings_module() -> str:
    """The settings module of this process. Raises ImproperlyConfigured for settings that were configured in code."""
    name = os.environ.get("DJANGO_SETTINGS_MODULE", "")
    if not name:
        raise ImproperlyConfigured("DJANGO_SETTINGS_MODULE is not set, and a step needs it; start this by manage.py")
    return name


def project_name() -> str:
    """Which of the jobs on the site belong to this project: TOBAN['PROJECT'], else the package of the settings."""
    return str(options().get("PROJECT") or settings_module().partition(".")[0])


def project_dir() -> Path:
    """The folder of manage.py: TOBAN['PROJECT_DIR'], else that of the started program. Raises ImproperlyConfigured."""
    folder = Path(options().get("PROJECT_DIR") or Path(sys.argv[0]).parent).resolve()
    if not (folder / "manage.py").is_file():
        raise ImproperlyConfigured(f"there is no manage.py in {folder}; set TOBAN['PROJECT_DIR'] to its folder")
    return folder
