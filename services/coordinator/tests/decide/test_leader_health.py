"""What a sub-leader concludes (docs/fencing.md 3.4)."""

from datetime import UTC, datetime, timedelta

import pytest

from toban_coordinator.decide.cluster.leader_health import (
    LeaderSigns,
    Standby,
    StreamEnd,
    is_death,
    is_subleader,
    is_suspect,
    should_degrade,
    should_yield,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def signs(tick_age=0.0, still=0.0, ticking=None):
    last = None if tick_age is None else NOW - timedelta(seconds=tick_age)
    return LeaderSigns(last_tick_at=last, beat_still_seconds=still, ticking=ticking)


@pytest.mark.parametrize(
    ("end", "refused", "dead"),
    [
        (StreamEnd.BROKEN, True, True),
        (StreamEnd.BROKEN, False, False),
        (StreamEnd.STEPPED_DOWN, True, False),
    ],
)
def test_only_a_broken_stream_and_a_refused_reconnect_are_death(end, refused, dead):
    assert is_death(end, reconnect_refused=refused) is dead


@pytest.mark.seed(105)
@pytest.mark.parametrize(
    ("found", "suspect"),
    [
        (signs(), False),
        (signs(tick_age=4.9), False),
        (signs(tick_age=5.1), True),
        (signs(still=5.1), True),
        (signs(tick_age=None), False),
    ],
)
def test_who_is_suspect(found, suspect):
    assert is_suspect(found, now=NOW, stale_seconds=5.0) is suspect


@pytest.mark.seed(106)
@pytest.mark.parametrize(("ticking", "degrade"), [(True, False), (False, True), (None, True)])
def test_a_suspect_leader_is_asked_first(ticking, degrade):
    assert should_degrade(signs(tick_age=6.0, ticking=ticking), now=NOW, stale_seconds=5.0) is degrade
    assert not should_degrade(signs(tick_age=1.0, ticking=ticking), now=NOW, stale_seconds=5.0)


@pytest.mark.parametrize(
    ("skew", "others", "expected"),
    [
        (2.1, [0.1], True),
        (-3600.0, [None, 5.0, -0.9], True),
        # In time itself; alone; the others unknown, off, or too near the bound to be sure of.
        (1.9, [0.0], False),
        (3.0, [], False),
        (3.0, [None], False),
        (3.0, [3.0, -2.5], False),
        (2.1, [1.9], False),
    ],
)
def test_who_gives_way_for_its_clock(skew, others, expected):
    assert should_yield(skew, others) is expected


@pytest.mark.parametrize(
    ("me", "others", "leader_node", "expected"),
    [
        ((1, "b"), [], "a", True),
        ((1, "a"), [], "a", True),
        ((1, "a"), [(2, "b")], "a", False),
        ((2, "b"), [(1, "a")], "a", True),
        ((2, "b"), [(1, "b")], "a", False),
        ((1, "b"), [(2, "b"), (3, "c")], "a", True),
        ((3, "c"), [(1, "b"), (2, "b")], "a", True),
        ((2, "a"), [(1, "a")], "a", False),
        ((1, "a"), [(2, "a")], "a", True),
        ((1, "a"), [(2, "b")], "", True),
    ],
)
def test_who_is_sub_leader(me, others, leader_node, expected):
    mine, *rest = [Standby(f"i{worker_id}", worker_id, node_id) for worker_id, node_id in (me, *others)]
    assert is_subleader(mine, rest, leader_node=leader_node) is expected
