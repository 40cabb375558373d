"""Manifests: documents {apiVersion, kind, metadata, spec} of jobs, schedules and triggers.

The models (`jobs`, `steps`, `retries`, `schedules`, `triggers`) are the only description of the format: `read` parses with them,
`schema` makes the published JSON Schema of them, and `reference` reads that file for `toban explain` and docs/manifests.md.
This module imports nothing, so that the light modules (`problems`, `reference`) load without pydantic.
"""
