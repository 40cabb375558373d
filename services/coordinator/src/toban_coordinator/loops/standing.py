"""The loops that every coordinator runs, whether it leads or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from toban_coordinator.loops.executor_leases import Observer
from toban_coordinator.loops.external_locks import ClaimObserver
from toban_coordinator.loops.progress_writer import TICK_SECONDS as PROGRESS_SECONDS
from toban_coordinator.loops.progress_writer import ProgressWriter
from toban_coordinator.loops.watchdog import TICK_SECONDS as WATCHDOG_SECONDS
from toban_coordinator.loops.watchdog import Watchdog
from toban_coordinator.ports.leader import LeaderSource
from toban_coordinator.store.cluster.settings import SettingsCache
from toban_observability.error_rate import SAMPLE_SECONDS, ErrorRate
from toban_runtime.clock import Clock
from toban_runtime.loop import Loop, WakeRegistry
from toban_store.pool import Pool

# A change wakes the loop: by its notification, or by the version that presence reads each second.
SETTINGS_SECONDS = 15.0
OBSERVE_SECONDS = 0.5
PRESENCE_SECONDS = 1.0
MIRROR_SECONDS = 1.0
Work = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingDeps:
    """What these loops work with. `presence`, `mirror` and `subleader` are the turns of others."""

    pool: Pool
    clock: Clock
    leader: LeaderSource
    settings: SettingsCache
    errors: ErrorRate
    observer: Observer
    claims: ClaimObserver
    progress: ProgressWriter
    wakes: WakeRegistry
    presence: Work
    mirror: Work
    subleader: Work


def standing_loops(deps: StandingDeps) -> Sequence[Loop]:
    """The loops, each registered under its name."""
    clock, settings = deps.clock, deps.settings
    watchdog = Watchdog(pool=deps.pool, leader=deps.leader, settings=settings)

    async def refresh_settings() -> None:
        if await settings.refresh():
            # Loops that sleep by the old ticks.
            deps.wakes.wake("")

    async def sample_errors() -> None:
        deps.errors.sample(clock.monotonic())

    async def observe() -> None:
        # A settled leader's loops `lease` and `external` read more often than this one.
        view = deps.leader.view()
        if not (view.leading and view.settled):
            await deps.observer.run_once()
            await deps.claims.run_once()

    loops = [
        Loop("settings", refresh_settings, SETTINGS_SECONDS, clock),
        Loop("errors", sample_errors, SAMPLE_SECONDS, clock),
        Loop("observe", observe, OBSERVE_SECONDS, clock),
        Loop("presence", deps.presence, PRESENCE_SECONDS, clock),
        Loop("mirror", deps.mirror, MIRROR_SECONDS, clock),
        Loop("progress", deps.progress.run_once, PROGRESS_SECONDS, clock),
        Loop("subleader", deps.subleader, lambda: settings.known["subleader_check_seconds"], clock),
        Loop("watchdog", watchdog.run_once, WATCHDOG_SECONDS, clock),
    ]
    for loop in loops:
        deps.wakes.register(loop.name, loop.wake)
    return loops
