"""For programs that Toban runs: progress, heartbeats, checkpoints, output and cancellation (docs/jobs.md), and secrets (docs/secrets.md)."""

from toban.job import CANCELLED_EXIT_CODE, Job, JobError, current_job
from toban.secrets import SecretMissingError, secret

__all__ = ["CANCELLED_EXIT_CODE", "Job", "JobError", "SecretMissingError", "current_job", "secret"]
