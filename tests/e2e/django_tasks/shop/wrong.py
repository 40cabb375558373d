"""Settings with mistakes in TASKS."""

from shop.settings import *

BACKEND = "toban.django.tasks.TobanBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": []},
    "other": {
        "BACKEND": BACKEND,
        "QUEUES": ["ü"],
        "OPTIONS": {"JOBS": 1, "JOB": {"timeout": 60}, "QUEUE_JOBS": {"slow": {}}, "DATABASE": "second"},
    },
}
