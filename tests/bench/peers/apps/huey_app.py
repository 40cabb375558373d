"""Huey on Redis."""

import os
import time

import effects
from huey import RedisHuey

app = RedisHuey("bench", url=os.environ["BENCH_REDIS_URL"], results=False)
TASKS = {kind: app.task(name=kind)(getattr(effects, kind)) for kind in ("noop", "true")}


def send(kind, numbers):
    """Huey has no call for many tasks."""
    for number in numbers:
        TASKS[kind](number, time.time_ns())
