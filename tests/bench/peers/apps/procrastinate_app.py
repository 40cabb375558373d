"""Procrastinate on PostgreSQL."""

import os
import time

import effects
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_DATABASE_URL"]))


async def _noop(number, enqueued):
    effects.noop(number, enqueued)


TASKS = {"noop": app.task(_noop, name="noop"), "true": app.task(effects.true_async, name="true")}


def send(kind, numbers):
    """Together."""
    if not _opened:
        _opened.append(app.open())
    now = time.time_ns()
    TASKS[kind].batch_defer(*[{"number": number, "enqueued": now} for number in numbers])


_opened = []
