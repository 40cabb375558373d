"""Executors: sessions, leases, groups."""
