"""What a job of class `isolated` leaves to the next run of its slot, on an executor that has one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from toban_stack.stack import Stack
from toban_testing.hostile_jobs import isolating_stack, note, start_hostile
from toban_testing.stack_fixtures import admin_of


@pytest.fixture(scope="module")
def one_slot() -> Iterator[Stack]:
    with isolating_stack(coordinators=1, executors=1, slots=1) as made:
        yield made


def test_the_next_run_of_a_slot_finds_nothing_of_the_run_before(attacks: Any, one_slot: Stack) -> None:
    """Files, processes, System V IPC, keys of the kernel, limits and priority."""
    with admin_of(one_slot) as admin:
        leaver = note(attacks, admin, start_hostile(admin, "leave", {}))
        assert admin.until_ended(start_hostile(admin, "leave", {})).state == "SUCCEEDED", "a run is left as before"
        looker = note(attacks, admin, start_hostile(admin, "look", {"nice": os.getpriority(os.PRIO_PROCESS, 0)}))
    assert leaver == looker, "it was the same slot"
