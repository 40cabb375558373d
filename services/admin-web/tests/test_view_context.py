"""The limit of log streams."""

from __future__ import annotations

import threading

from toban_admin_web.views.view_context import StreamSlots


def test_a_slot_is_released_once() -> None:
    slots = StreamSlots(4)
    release = slots.acquire("ada", stream=False)
    assert release is not None
    threads = [threading.Thread(target=release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slots.in_use == 0
    releases = [slots.acquire(f"person {n}", stream=False) for n in range(slots.size + 1)]
    assert releases[-1] is None and all(releases[:-1])


def test_one_person_occupies_half_of_the_places_by_others() -> None:
    for size, most in ((4, 2), (16, 8), (64, 32)):
        slots = StreamSlots(size)
        mine = [slots.acquire("ada", stream=False) for _ in range(most + 1)]
        assert mine[-1] is None and all(mine[:-1])
        assert f"ada has {most} open downloads" in slots.refusal("ada", stream=False)
        assert slots.acquire("ada", stream=True) and slots.acquire("eve", stream=False), "these are counted apart"
        for release in filter(None, mine):
            release()
        assert slots.acquire("ada", stream=False)
