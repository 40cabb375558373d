"""Who leads, for the bar of each page: one read of GetCluster in FRESH_SECONDS for all pages and people of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from toban_admin_web.decide.api_models import Cluster
from toban_admin_web.decide.dashboard import leader_status
from toban_domain.errors import ErrorCode, TobanError
from toban_runtime.clock import Clock

FRESH_SECONDS = 5.0
# Then what was read last is no longer shown as what is.
STALE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Seen:
    """`status`: as leader_status; away when the coordinators give no answer, and unknown before the first one."""

    status: str
    address: str = ""
    epoch: str = ""


class LeaderPill:
    """The last answer. A page that is made while another one asks, or when asking has just failed, shows the one before."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._asking = threading.Lock()
        self._seen = Seen("unknown")
        self._seen_at = self._asked_at = float("-inf")
        self._failed = False

    def take(self, cluster: Cluster) -> None:
        """An answer that a page needed for itself."""
        self._seen = Seen(leader_status(cluster), cluster.leader_address, str(cluster.epoch))
        self._seen_at = self._asked_at = self._clock.monotonic()
        self._failed = False

    def now(self, read: Callable[[], Cluster] | None) -> Seen:
        """The state, read when it is old. Without `read` the coordinators are not called."""
        if read is not None and self._clock.monotonic() - self._asked_at >= FRESH_SECONDS:
            self._ask(read)
        old = self._clock.monotonic() - self._seen_at > STALE_SECONDS
        if self._failed or (old and self._seen.status != "unknown"):
            return Seen("away", self._seen.address, self._seen.epoch)
        return self._seen

    def failed(self) -> None:
        """The coordinators gave a page no answer."""
        self._failed = True

    def _ask(self, read: Callable[[], Cluster]) -> None:
        if not self._asking.acquire(blocking=False):
            return
        try:
            self._asked_at = self._clock.monotonic()
            self.take(read())
        except TobanError as error:
            # A person without rights learns nothing, and takes nothing from others.
            self._failed = error.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED)
        finally:
            self._asking.release()
