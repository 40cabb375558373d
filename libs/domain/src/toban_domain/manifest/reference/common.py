"""`metadata`, the same for every kind."""

from __future__ import annotations

from toban_domain.manifest.reference.fields import field

METADATA = (
    field(
        "name",
        "name",
        "a-z, 0-9, `.`, `_`, `-`, beginning and ending with a letter or digit, at most 128; one a kind",
        unset="required",
        example="nightly-report",
    ),
    field("description", "text", "for people", default='""', example="Makes the report"),
    field("labels", "text to text", "for people and filters", default="{}", example="{team: ops}"),
)
