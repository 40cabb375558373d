"""Follows the settings of the cluster: a stream from one coordinator, opened again at another one when it ends or falls behind."""

import asyncio
from collections.abc import Callable

from toban_domain.errors import TobanError
from toban_domain.settings import Settings
from toban_executor.ports import SettingsSource
from toban_observability import metrics
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

BEHIND_SECONDS = 2.0
"""A stream that differs for this long from what heartbeats are told hangs."""
_FAILURES_TO_TELL = 3

_log = get_logger(__name__)
_version = metrics.gauge("toban_executor_settings_version", "Version of the settings that this executor works with.")


class SettingsWatch:
    """`known` are the defaults until a coordinator has said more; `heard` says whether one has. `on_change` hears of each change."""

    def __init__(self, *, source: SettingsSource, clock: Clock) -> None:
        self.known = Settings()
        self.heard = False
        self.on_change: Callable[[], None] = lambda: None
        self._source = source
        self._clock = clock
        self._backoff = Backoff(base=0.1, cap=5.0)
        self._failures = 0
        self._stream: asyncio.Task[None] | None = None
        self._behind_since: float | None = None

    async def run(self) -> None:
        """For ever; cancel to end."""
        while True:
            self._stream = asyncio.ensure_future(self._follow())
            try:
                await asyncio.wait({self._stream})
            finally:
                self._stream.cancel()
            self._note(self._stream)
            await self._clock.sleep(self._backoff.delay(max(1, self._failures)))

    def told(self, version: int) -> None:
        """The answer to a heartbeat names the present version. A stream that stays behind is opened again elsewhere."""
        now = self._clock.monotonic()
        if version == self.known.version:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now - self._behind_since >= BEHIND_SECONDS and self._stream is not None:
            self._behind_since = None
            self._stream.cancel()

    async def _follow(self) -> None:
        async for settings in self._source.watch_settings(self.known.version):
            self._failures = 0
            if settings == self.known and self.heard:
                continue
            _log.info("settings", version=settings.version, changed=_difference(self.known, settings))
            self.known, self.heard = settings, True
            _version.set(settings.version)
            self.on_change()

    def _note(self, stream: "asyncio.Task[None]") -> None:
        error = None if stream.cancelled() else stream.exception()
        if error is None:
            return
        self._failures += 1
        if not isinstance(error, TobanError):
            _log.error("the settings are not followed", exc_info=error)
        elif self._failures == _FAILURES_TO_TELL:
            wait = round(self._backoff.delay(self._failures), 2)
            _log.warning(
                "the settings are not followed", attempt=self._failures, error=error.message, next_try_seconds=wait
            )


def _difference(before: Settings, after: Settings) -> dict[str, float]:
    return {name: value for name, value in after.values.items() if before[name] != value}
