"""Celery on Redis. Beat has its schedules from the configuration, made of BENCH_DUE: their number and the minute when they are due."""

import os
import time
from datetime import UTC, datetime

import effects
from celery import Celery
from celery.schedules import crontab

app = Celery("bench", broker=os.environ["BENCH_REDIS_URL"])
app.conf.update(task_ignore_result=True, timezone="UTC", worker_hijack_root_logger=False)
TASKS = {kind: app.task(getattr(effects, kind), name=kind) for kind in ("noop", "true", "due")}
if "BENCH_DUE" in os.environ:
    count, at = map(int, os.environ["BENCH_DUE"].split())
    moment = datetime.fromtimestamp(at, UTC)
    app.conf.beat_schedule = {
        f"due-{number}": {
            "task": "due",
            "schedule": crontab(minute=moment.minute, hour=moment.hour),
            "args": (number, at * 10**9),
        }
        for number in range(count)
    }


def send(kind, numbers):
    """Celery has no call for many tasks."""
    for number in numbers:
        TASKS[kind].delay(number, time.time_ns())
