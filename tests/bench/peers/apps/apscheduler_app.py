"""APScheduler with its jobs in PostgreSQL. What adds a job is the scheduler's own process: another one would not wake it."""

import os
import time
from datetime import UTC, datetime

import effects
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

url = os.environ["BENCH_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")
scheduler = BackgroundScheduler(
    jobstores={"default": SQLAlchemyJobStore(url=url)},
    executors={"default": ThreadPoolExecutor(32)},
    job_defaults={"misfire_grace_time": None},
    timezone="UTC",
)
scheduler.start()
# Schedules of an earlier round, which are not due before tomorrow.
scheduler.remove_all_jobs()


def send(kind, numbers):
    """APScheduler has no call for many jobs."""
    for number in numbers:
        scheduler.add_job(getattr(effects, kind), args=(number, time.time_ns()))


def schedule(count, at):
    """So many schedules that are due at this second."""
    moment = datetime.fromtimestamp(at, UTC)
    for number in range(count):
        scheduler.add_job(
            effects.due,
            "cron",
            args=(number, at * 10**9),
            hour=moment.hour,
            minute=moment.minute,
            second=moment.second,
        )
