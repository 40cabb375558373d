"""Loop `archive`: a pass of the archive each minute, unless another log-archiver is at work."""

from __future__ import annotations

from contextlib import suppress

from toban_log_archiver.app.archive_pass import Archiver, Busy
from toban_observability import tracing
from toban_runtime.settings_watch import SettingsWatch


class ArchiveLoop:
    """`run_once` for a Loop. Nothing is archived by default settings: the coordinators' may keep output longer."""

    def __init__(self, *, archiver: Archiver, settings: SettingsWatch) -> None:
        self._archiver = archiver
        self._settings = settings
        self._turns_without_settings = 0

    async def run_once(self) -> None:
        """One pass. An outage ends it and is raised: the loop's backoff is the time until the next one."""
        if not self._settings.received:
            self._turns_without_settings += 1
            if self._turns_without_settings > 1:
                self._archiver.set_problem(
                    "the settings are not known yet, so nothing is archived: see that SCHEDULER_COORDINATORS is right"
                )
            return
        with suppress(Busy), tracing.span("archive"):
            await self._archiver.run_pass()
