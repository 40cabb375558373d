"""For programs that Toban runs: progress, heartbeats, checkpoints, output and cancellation (docs/jobs.md)."""

from toban.job import CANCELLED_EXIT_CODE, Job, JobError, current_job

__all__ = ["CANCELLED_EXIT_CODE", "Job", "JobError", "current_job"]
