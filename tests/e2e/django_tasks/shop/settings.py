"""A project whose tasks are runs of Toban. The test writes the module `place`."""

import importlib.util
from pathlib import Path

from place import NAME

SECRET_KEY = "a test signs nothing of value"
# Before Django 6 tasks are an app.
BACKPORT = [] if importlib.util.find_spec("django.tasks") else ["django_tasks"]
INSTALLED_APPS = ["shop", "toban.django", *BACKPORT]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(__file__).parents[1] / "db.sqlite3")}}
USE_TZ = True
TASKS = {
    "default": {
        "BACKEND": "toban.django.tasks.TobanBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"JOB": {"timeout_seconds": 60}, "QUEUE_JOBS": {"mail": {"timeout_seconds": 90, "priority": 5}}},
    }
}
TOBAN = {"PROJECT": NAME}
