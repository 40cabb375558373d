"""Logs, metrics and the plain admin port."""
