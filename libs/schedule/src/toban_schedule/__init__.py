"""Pure schedule arithmetic: intervals, cron, zones, DST."""

from toban_schedule.annotated_slots import AnnotatedSlot, annotated_slots
from toban_schedule.describe import describe
from toban_schedule.dst_preview import next_dst_change
from toban_schedule.minute_counts import minute_counts
from toban_schedule.rule import Rule, next_slot, problems, slots
from toban_schedule.slot_count import SlotCount, count_slots
from toban_schedule.spec import RuleLike, ScheduleError
from toban_schedule.zones import load_zone, zone_names

__all__ = [
    "AnnotatedSlot",
    "Rule",
    "RuleLike",
    "ScheduleError",
    "SlotCount",
    "annotated_slots",
    "count_slots",
    "describe",
    "load_zone",
    "minute_counts",
    "next_dst_change",
    "next_slot",
    "problems",
    "slots",
    "zone_names",
]
