"""Limits, breakers and fair shares."""
