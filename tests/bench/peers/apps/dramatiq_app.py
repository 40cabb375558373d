"""Dramatiq on Redis."""

import os
import time

import dramatiq
import effects
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS_URL"]))
TASKS = {kind: dramatiq.actor(getattr(effects, kind), actor_name=kind) for kind in ("noop", "true")}


def send(kind, numbers):
    """Dramatiq has no call for many tasks."""
    for number in numbers:
        TASKS[kind].send(number, time.time_ns())
