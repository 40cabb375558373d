"""Answers: LogIngest for executors, LogReader for people, and the one writer behind all streams."""
