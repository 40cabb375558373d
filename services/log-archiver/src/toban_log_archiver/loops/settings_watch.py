"""Follows the settings of the cluster: a stream from one coordinator, opened again at another one when it ends."""

from __future__ import annotations

from collections.abc import Callable

from toban_domain.errors import TobanError
from toban_domain.settings import Settings
from toban_log_archiver.ports.archive_gateway import ArchiveGateway
from toban_observability.logs import get_logger
from toban_runtime.backoff import Backoff
from toban_runtime.clock import Clock

_FAILURES_TO_TELL = 3
_log = get_logger(__name__)


class SettingsWatch:
    """`known` are the defaults until a coordinator has said more; `heard` says whether one has. `on_change` hears of each change."""

    def __init__(self, *, source: ArchiveGateway, clock: Clock) -> None:
        self.known = Settings()
        self.heard = False
        self.on_change: Callable[[], None] = lambda: None
        self._source = source
        self._clock = clock
        self._backoff = Backoff(base=0.1, cap=5.0)

    async def run(self) -> None:
        """For ever; cancel to end."""
        failures = 0
        while True:
            try:
                async for settings in self._source.watch_settings(self.known.version):
                    failures = 0
                    self._take(settings)
            except TobanError as error:
                failures += 1
                if failures == _FAILURES_TO_TELL:
                    _log.warning("the settings are not followed", attempt=failures, error=error.message)
            await self._clock.sleep(self._backoff.delay(max(1, failures)))

    def _take(self, settings: Settings) -> None:
        if settings == self.known and self.heard:
            return
        changed = {name: value for name, value in settings.values.items() if self.known[name] != value}
        _log.info("settings", version=settings.version, changed=changed)
        self.known, self.heard = settings, True
        self.on_change()
