"""Follows the settings of the cluster: a stream from one coordinator, reopened at another one when it ends or falls behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from toban_domain.errors import TobanError
from toban_domain.settings import Settings
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

BEHIND_SECONDS = 2.0
"""A stream whose version differs for this long from the one in heartbeat answers hangs."""
_LOGGED_FAILURE = 3

_log = get_logger(__name__)


class SettingsSource(Protocol):
    """Any coordinator; another one with each call."""

    def watch_settings(self, known_version: int) -> AsyncIterator[Settings]:
        """The settings now and at each change; ends with the stream. Raises TobanError."""
        ...


class SettingsWatch:
    """`known` are the defaults until the first answer of a coordinator; `received` is True after it.

    `on_version` runs after the first answer and after each change.
    """

    def __init__(
        self, *, source: SettingsSource, clock: Clock, on_version: Callable[[int], object] = lambda _version: None
    ) -> None:
        self.known = Settings()
        self.received = False
        self._on_version = on_version
        self._source = source
        self._clock = clock
        self._backoff = Backoff(base=0.1, cap=5.0)
        self._throttle = LogThrottle()
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
                await asyncio.gather(self._stream, return_exceptions=True)
            self._log_failure(self._stream)
            await self._clock.sleep(self._backoff.delay(max(1, self._failures)))

    def note_version(self, version: int) -> None:
        """The answer to a heartbeat names the present version. A stream that stays behind is reopened at another coordinator."""
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
            if settings == self.known and self.received:
                continue
            event = "settings changed" if self.received else "settings received from the coordinator"
            _log.info(event, version=settings.version, changed=_difference(self.known, settings))
            self.known, self.received = settings, True
            self._on_version(settings.version)

    def _log_failure(self, stream: "asyncio.Task[None]") -> None:
        error = None if stream.cancelled() else stream.exception()
        if error is None:
            return
        self._failures += 1
        if not isinstance(error, TobanError):
            suppressed = self._throttle.admit(type(error).__name__, self._clock.monotonic())
            if suppressed is not None:
                _log.error("settings stream failed", attempt=self._failures, suppressed=suppressed, exc_info=error)
        elif self._failures == _LOGGED_FAILURE:
            wait = round(self._backoff.delay(self._failures), 2)
            _log.warning("settings stream failed", attempt=self._failures, error=error.message, next_try_seconds=wait)


def _difference(before: Settings, after: Settings) -> dict[str, float]:
    return {name: value for name, value in after.values.items() if before[name] != value}
