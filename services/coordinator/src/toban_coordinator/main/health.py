"""What /healthz of a coordinator says; from memory only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from toban_coordinator.decide.cluster.leader_health import MAX_SKEW_SECONDS
from toban_coordinator.leadership import Leadership, ServerTime
from toban_coordinator.ports.settings import SettingsSource
from toban_domain.epoch import near_limit
from toban_fencing.redis_client import RedisLink
from toban_observability.error_rate import ErrorRate
from toban_observability.health import Check, report

# PostgreSQL answers the election several times a second.
POSTGRES_SECONDS = 3.0


class Health:
    """PostgreSQL is an error, and so is a cluster without a leader; Redis is a warning. A standby is as healthy as the leader.

    Without a leader a coordinator still answers and grants leases, so it stays ready.
    """

    def __init__(
        self,
        *,
        leadership: Leadership,
        server_time: ServerTime,
        redis: RedisLink,
        settings: SettingsSource,
        errors: ErrorRate,
        certificate: Callable[[], Check],
    ) -> None:
        self._certificate = certificate
        self._settings = settings
        self._errors = errors
        self._leadership = leadership
        self._server_time = server_time
        self._redis = redis

    def document(self) -> dict[str, Any]:
        """The JSON document of /healthz."""
        view = self._leadership.view()
        age = self._server_time.age_seconds
        skew = self._server_time.skew_seconds
        fresh = age is not None and age <= POSTGRES_SECONDS
        checks = {
            "postgresql": Check("ok" if fresh else "error", round(age, 3) if age is not None else None),
            "redis": Check("ok" if self._redis.up else "warning", self._redis.up),
            # Documents travel: this one says whose it is.
            "coordinator": Check("ok", self._leadership.me.address),
            "role": Check("ok", view.role),
            "leader": self._leader(),
            "epoch": Check("warning" if near_limit(view.epoch) else "ok", str(view.epoch)),
            "settled": Check("ok" if view.settled else "warning", view.settled),
            "clock_skew_seconds": self._clock(skew, leading=view.leading),
            "last_tick": self._last_tick(fresh),
            "last_fire": Check("ok", view.last_fire_at.isoformat() if view.last_fire_at else None),
            "errors_5_minutes": self._errors.check(),
            "certificate": self._certificate(),
        }
        return report(checks)

    def _leader(self) -> Check:
        leaderless = self._leadership.leaderless_seconds()
        if leaderless <= self._settings.known["leader_stale_seconds"]:
            return Check("ok", self._leadership.view().address or None)
        obstacle = self._leadership.obstacle()
        text = f"none for {leaderless:.0f} s" + (f": {obstacle}" if obstacle else "")
        return Check("error", text, ready=True)

    def _clock(self, skew: float, *, leading: bool) -> Check:
        """An error where nothing fires because of it: a leader that is off leads because no other can."""
        if abs(skew) <= MAX_SKEW_SECONDS:
            return Check("ok", round(skew, 3))
        return Check("error" if leading else "warning", round(skew, 3), ready=True)

    def _last_tick(self, fresh: bool) -> Check:
        view = self._leadership.view()
        if view.last_tick_at is None:
            return Check("warning", None)
        stale = timedelta(seconds=self._settings.known["leader_stale_seconds"])
        late = fresh and self._server_time.now() - view.last_tick_at > stale
        return Check("warning" if late else "ok", view.last_tick_at.isoformat())


class HealthDocument:
    """The document of /healthz: an error of PostgreSQL until `begin`, since a coordinator draws its number there first."""

    def __init__(self) -> None:
        self._health: Health | None = None

    def begin(self, health: Health) -> None:
        """This coordinator serves."""
        self._health = health

    def __call__(self) -> dict[str, Any]:
        """The JSON document as it is now."""
        return report({"postgresql": Check("error", None)}) if self._health is None else self._health.document()
