"""The settings of a cluster as a process follows them: streams that end, hang or fail; what is logged."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import Settings
from toban_observability import log_throttle
from toban_runtime.clock import SystemClock
from toban_runtime.settings_watch import BEHIND_SECONDS, SettingsWatch
from toban_testing.clock import FakeClock
from toban_testing.waiting import until


class Source:
    """Streams that a test feeds; each ends or hangs as the test says."""

    def __init__(self) -> None:
        self.opened = 0
        self.news: asyncio.Queue[Settings | Exception] = asyncio.Queue()

    async def watch_settings(self, known_version: int) -> AsyncIterator[Settings]:
        self.opened += 1
        while True:
            item = await self.news.get()
            if isinstance(item, Exception):
                raise item
            yield item


async def test_a_stream_that_ends_is_opened_again_and_values_stay() -> None:
    source, changes = Source(), []
    watch = SettingsWatch(source=source, clock=SystemClock(), on_version=changes.append)
    task = asyncio.create_task(watch.run())
    source.news.put_nowait(Settings({"assign_ahead_seconds": 5}, version=3))
    await until(lambda: watch.received)
    for code in (ErrorCode.UNAVAILABLE, ErrorCode.UNIMPLEMENTED):
        source.news.put_nowait(TobanError(code, "no"))
    source.news.put_nowait(Settings({"assign_ahead_seconds": 5}, version=3))
    source.news.put_nowait(Settings({"assign_ahead_seconds": 6}, version=4))
    await until(lambda: watch.known.version == 4)
    assert (source.opened, changes) == (3, [3, 4]), "the same settings again are no change"
    assert watch.known["assign_ahead_seconds"] == 6
    task.cancel()


async def test_a_stream_that_stays_behind_what_heartbeats_say_is_opened_again() -> None:
    source, clock = Source(), FakeClock()
    watch = SettingsWatch(source=source, clock=clock)
    task = asyncio.create_task(watch.run())
    source.news.put_nowait(Settings(version=3))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (watch.known.version, source.opened) == (3, 1)
    watch.note_version(4)
    await clock.advance(BEHIND_SECONDS / 2)
    watch.note_version(3)
    watch.note_version(4)
    await clock.advance(BEHIND_SECONDS / 2 + 0.1)
    watch.note_version(4)
    await clock.advance(1.0)
    assert source.opened == 1, "not behind for long enough in one go"
    watch.note_version(4)
    await clock.advance(1.0)
    assert source.opened == 2
    task.cancel()


async def test_only_a_change_is_logged_as_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    source, changes = Source(), asyncio.Queue[int]()
    watch = SettingsWatch(source=source, clock=SystemClock(), on_version=changes.put_nowait)
    task = asyncio.create_task(watch.run())
    async with asyncio.timeout(60):
        source.news.put_nowait(Settings({"assign_ahead_seconds": 5}, version=3))
        assert await changes.get() == 3
        assert "settings changed" not in caplog.text
        assert "settings received" in caplog.text
        source.news.put_nowait(Settings({"assign_ahead_seconds": 6}, version=4))
        assert await changes.get() == 4
    assert caplog.text.count("settings changed") == 1
    task.cancel()


async def test_an_unexpected_error_is_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    source, clock = Source(), FakeClock()
    watch = SettingsWatch(source=source, clock=clock)
    task = asyncio.create_task(watch.run())
    for _ in range(4):
        source.news.put_nowait(RuntimeError("defect"))
        await clock.advance(5.0)
    assert source.opened == 5
    assert caplog.text.count("settings stream failed") == 1 and "defect" in caplog.text
    await clock.advance(log_throttle.INTERVAL_SECONDS)
    source.news.put_nowait(RuntimeError("defect"))
    await clock.advance(1.0)
    assert caplog.text.count("settings stream failed") == 2
    assert "'suppressed': 3" in caplog.text
    task.cancel()


async def test_errors_of_coordinators_are_logged_from_the_third_on_once(caplog: pytest.LogCaptureFixture) -> None:
    source, clock = Source(), FakeClock()
    task = asyncio.create_task(SettingsWatch(source=source, clock=clock).run())
    for count in (0, 0, 1, 1, 1):
        source.news.put_nowait(TobanError(ErrorCode.UNAVAILABLE, "away"))
        await clock.advance(5.0)
        assert caplog.text.count("settings stream failed") == count
    task.cancel()
