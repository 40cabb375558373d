"""Schedules and their slots."""
