"""Calls to coordinators and log-archivers."""
