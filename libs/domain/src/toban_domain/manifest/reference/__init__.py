"""Every key of every kind of manifest. A test holds it against what the readers ask for, and tries each default and example."""

from __future__ import annotations

from collections.abc import Mapping

from toban_domain.manifest.reference.common import METADATA
from toban_domain.manifest.reference.fields import Field, Kind, rows
from toban_domain.manifest.reference.jobs import JOB
from toban_domain.manifest.reference.schedules import SCHEDULE
from toban_domain.manifest.reference.triggers import TRIGGER

__all__ = ["KINDS", "METADATA", "Field", "Kind", "rows"]

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (JOB, SCHEDULE, TRIGGER)}
