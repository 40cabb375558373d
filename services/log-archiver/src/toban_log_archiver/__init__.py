"""Owns schema logs and the archive in S3."""
