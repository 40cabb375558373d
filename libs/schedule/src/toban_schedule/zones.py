"""Time zones from the tzdata package alone: every coordinator has the same rules, whatever its machine has installed."""

from __future__ import annotations

import difflib
from datetime import UTC, tzinfo
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

from toban_schedule.spec import ScheduleError


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """All names of zones, sorted."""
    return tuple(sorted((resources.files("tzdata") / "zones").read_text(encoding="utf-8").split()))


@lru_cache(maxsize=1024)
def load_zone(name: str) -> tzinfo:
    """The zone; raises ScheduleError with names that are near when there is none."""
    if name == "UTC":
        return UTC
    if name not in zone_names():
        raise ScheduleError("timezone", f"there is no zone {name!r}", _hint(name))
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _hint(name: str) -> str:
    near = _near(name)
    return f"did you mean {' or '.join(near)}?" if near else "use an IANA name such as Europe/Berlin or UTC"


def _near(name: str) -> list[str]:
    wanted = name.lower().replace(" ", "_")
    places = [zone for zone in zone_names() if zone.lower() == wanted or zone.rsplit("/", 1)[-1].lower() == wanted]
    if places:
        return places[:3]
    lowered = {zone.lower(): zone for zone in zone_names()}
    close = difflib.get_close_matches(wanted, list(lowered), n=3, cutoff=0.75)
    if not close:
        last = {zone.rsplit("/", 1)[-1].lower(): zone for zone in zone_names()}
        close = [last[part].lower() for part in difflib.get_close_matches(wanted, list(last), n=2, cutoff=0.75)]
    return [lowered[zone] for zone in close]
