"""Talks to others: the object store."""
