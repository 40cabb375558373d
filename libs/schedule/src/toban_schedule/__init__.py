"""Pure schedule arithmetic: intervals, cron, zones, DST."""

from toban_schedule.annotated_slots import NotedSlot, noted_slots
from toban_schedule.describe import describe
from toban_schedule.dst_preview import coming_change
from toban_schedule.rule import Rule, next_slot, problems, slots
from toban_schedule.slot_count import Stretch, stretch
from toban_schedule.spec import RuleLike, ScheduleError
from toban_schedule.zones import load_zone, zone_names

__all__ = [
    "NotedSlot",
    "Rule",
    "RuleLike",
    "ScheduleError",
    "Stretch",
    "coming_change",
    "describe",
    "load_zone",
    "next_slot",
    "noted_slots",
    "problems",
    "slots",
    "stretch",
    "zone_names",
]
