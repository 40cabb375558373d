"""The limit of log streams."""

from __future__ import annotations

import threading

from toban_admin_web.views.view_context import StreamSlots


def test_a_slot_is_released_once() -> None:
    slots = StreamSlots(4)
    release = slots.acquire()
    assert release is not None
    threads = [threading.Thread(target=release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slots.in_use == 0
    releases = [slots.acquire() for _ in range(slots.size + 1)]
    assert releases[-1] is None and all(releases[:-1])
