"""Runs jobs as subprocesses under a lease."""
