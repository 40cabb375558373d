"""Reads `metadata:` of a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toban_domain.manifest.fields import Fields


@dataclass(frozen=True, slots=True)
class Meta:
    """Name, description and labels of a document."""

    name: str
    description: str
    labels: Mapping[str, str]


def read_meta(fields: Fields) -> Meta:
    """The metadata; what is wrong is in the problems of `fields`."""
    meta = Meta(fields.name("name"), fields.text("description"), fields.texts("labels"))
    fields.done(title="name")
    return meta
