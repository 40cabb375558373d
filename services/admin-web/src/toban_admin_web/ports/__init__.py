"""Interfaces of what the pages read."""
