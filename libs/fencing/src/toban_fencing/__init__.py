"""Leases, epochs and orders, shared by all services; the only importer of redis."""
