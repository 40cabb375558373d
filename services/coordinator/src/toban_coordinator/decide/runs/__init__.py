"""Runs: their start, course and end."""
