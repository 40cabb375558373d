"""The slots of each minute over groups of schedules, and what a crowded minute names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from toban_coordinator.decide.schedules import coming_load as decide
from toban_coordinator.decide.schedules.coming_load import Crowded, Firing, Group, Named, UnreadableRule, Use

BEGIN = datetime(2026, 11, 29, 18, tzinfo=UTC)
HERE, THERE = Use("here", "system", ""), Use("there", "account", "17")
GROUPS = [
    Group({0: 1, 60: 1}, [Firing("a", 1, HERE), Firing("d", 1, THERE)]),
    Group({60: 3}, [Firing("b", 1, HERE)]),
    Group({90: 2}, [Firing("c", 1, THERE)]),
]


def test_slots_of_each_minute_from_the_first_one_on() -> None:
    assert decide.slots_by_minute(GROUPS, 0) == {0: 2, 60: 5, 90: 2}
    assert list(decide.slots_by_minute(GROUPS, 1)) == [60, 90]
    assert [decide.schedules_from(GROUPS, first) for first in (0, 61, 91)] == [4, 1, 0]


def test_the_most_crowded_minutes_of_equal_ones_the_earlier_first() -> None:
    assert decide.most_crowded({0: 2, 60: 5, 90: 2}, 2) == [60, 0]


def test_a_minute_names_its_first_schedules_over_all_groups() -> None:
    named = [Named(schedule="a", job="here", slots=1, version=1), Named(schedule="b", job="here", slots=3, version=1)]
    assert decide.crowded(GROUPS, 60, 2) == Crowded(minute=60, slots=5, schedules=3, named=named)


def test_only_what_a_person_may_see() -> None:
    assert decide.visible(GROUPS, frozenset({HERE})) == [
        Group({0: 1, 60: 1}, [Firing("a", 1, HERE)]),
        Group({60: 3}, [Firing("b", 1, HERE)]),
    ]


def test_how_many_schedules_have_a_job() -> None:
    assert decide.schedules_of(GROUPS, frozenset({THERE})) == 2 and decide.schedules_of(GROUPS, frozenset()) == 0


def test_a_rule_is_shared_unless_it_draws_from_the_name() -> None:
    shared = '{"cron": "0 3 * * THU", "timezone": "Asia/Shanghai"}'
    assert decide.rule_key(shared, "a") == decide.rule_key(shared, "b") == shared
    drawn = {decide.rule_key('{"cron": "H * * * *"}', name) for name in ("a", "b", "c", "d")}
    assert len(drawn) > 1 and all("H" not in key for key in drawn)
    assert decide.minutes_of(decide.rule_key('{"daily_at": "18:07"}', "a"), BEGIN) == {7: 1}


@pytest.mark.parametrize("rule", ['{"cron": "H(9-1) * * * *"}', '{"cron": 5}', "{}", "[]", '{"cron": "99 * * * *"}'])
def test_a_rule_that_cannot_be_read(rule: str) -> None:
    with pytest.raises(UnreadableRule):
        decide.minutes_of(decide.rule_key(rule, "a"), BEGIN)
