"""RQ."""

import os
import time

import redis
from rq import Queue

queue = Queue(connection=redis.Redis.from_url(os.environ["BENCH_REDIS_URL"]))


def send(kind, numbers):
    """Together."""
    now = time.time_ns()
    queue.enqueue_many([Queue.prepare_data(f"effects.{kind}", args=(number, now), result_ttl=0) for number in numbers])
