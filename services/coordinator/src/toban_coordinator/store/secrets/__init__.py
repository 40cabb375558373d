"""Secrets of jobs."""
