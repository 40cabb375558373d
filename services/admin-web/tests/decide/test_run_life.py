"""The bar of the life of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from toban_admin_web.decide.run_life import SMALLEST, WIDTH, RunLife, run_life
from toban_domain.state_times import state_spans

START = datetime(2026, 11, 29, 10, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def life(*changes: tuple[float, str], state: str, due: float | None = None, now: float = 1000) -> RunLife | None:
    spans = state_spans([(at(seconds), to) for seconds, to in changes], state)
    return run_life(spans, None if due is None else at(due), at(now))


def test_the_parts_are_to_scale_and_follow_each_other() -> None:
    found = life((0, "PENDING"), (100, "ASSIGNED"), (200, "RUNNING"), (400, "SUCCEEDED"), state="SUCCEEDED")
    assert found is not None
    assert [(one.kind, one.x, one.width) for one in found.parts] == [
        ("WAITING", 0, 250),
        ("ASSIGNED", 250, 250),
        ("RUNNING", 500, 500),
    ]
    assert found.totals == {"WAITING": 100, "ASSIGNED": 100, "RUNNING": 200}
    assert [one.tone for one in found.parts] == ["wait", "sent", "run"]


def test_a_wait_after_an_attempt_is_one_of_a_retry_and_kinds_are_added_up() -> None:
    changes = [(0, "PENDING"), (10, "ASSIGNED"), (20, "RUNNING"), (30, "PENDING"), (90, "ASSIGNED"), (95, "RUNNING")]
    found = life(*changes, state="RUNNING", now=195)
    assert found is not None
    assert [one.kind for one in found.parts] == ["WAITING", "ASSIGNED", "RUNNING", "RETRY", "ASSIGNED", "RUNNING"]
    assert found.totals == {"WAITING": 10, "ASSIGNED": 15, "RUNNING": 110, "RETRY": 60}


def test_a_short_part_is_seen_and_the_bar_stays_as_wide() -> None:
    found = life((0, "PENDING"), (0.01, "ASSIGNED"), (0.02, "RUNNING"), (86400, "FAILED"), state="FAILED")
    assert found is not None
    assert [one.width for one in found.parts] == [SMALLEST, SMALLEST, WIDTH - 2 * SMALLEST]
    crowd = [(number, ("RUNNING", "ORPHANED")[number % 2]) for number in range(500)]
    found = life(*crowd, state="ORPHANED", now=10**6)
    assert found is not None and len(found.parts) == 500
    assert found.parts[-1].x + found.parts[-1].width == pytest.approx(WIDTH, abs=1)
    assert all(one.x <= other.x for one, other in pairwise(found.parts)) and found.parts[-1].tone == "lost"


def test_a_run_that_was_created_ahead_waits_from_when_it_is_due_on() -> None:
    changes = [(0, "PENDING"), (3605, "ASSIGNED")]
    found = life(*changes, state="ASSIGNED", due=3600, now=3610)
    assert found is not None and found.totals == {"WAITING": 5, "ASSIGNED": 5}
    assert life((0, "PENDING"), state="PENDING", due=3600, now=10) is None
    found = life((0, "PENDING"), state="PENDING", due=3600, now=3601)
    assert found is not None and found.totals == {"WAITING": 1}
    found = life(*changes, state="ASSIGNED", due=9000, now=3610)
    assert found is not None and found.totals["WAITING"] == 3605, "what began before it was due has waited all the same"


def test_without_events_and_within_one_instant_there_is_no_bar() -> None:
    assert life(state="PENDING") is None
    assert life((0, "PENDING"), (0, "SKIPPED"), state="SKIPPED") is None
