"""Keeps the output of jobs: takes chunks from executors, serves them to readers; owns schema logs."""
