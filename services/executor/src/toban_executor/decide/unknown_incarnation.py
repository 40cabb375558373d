"""When a coordinator's `unknown incarnation` is believed: never on one coordinator's word alone (docs/fencing.md 3.5).

A coordinator on a standby that lags, or on a former primary, does not find rows that exist. Believing it would end every job here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from toban_domain.errors import ErrorCode, TobanError


@dataclass(slots=True)
class UnknownIncarnation:
    """Who denied this incarnation, and which coordinators answered otherwise, within the last lease (`lease_seconds`)."""

    lease_seconds: float = 0.0
    # Address → when it answered well; who denied (its incarnation, else its address) → when. Seconds of one monotonic clock.
    _answered: dict[str, float] = field(default_factory=dict)
    _denied: dict[str, float] = field(default_factory=dict)

    def note_answer(self, address: str, now: float) -> None:
        """This coordinator registered the incarnation or answered a heartbeat, so the row is there: earlier denials were wrong."""
        self._answered[address] = now
        self._denied.clear()

    def note_error(self, address: str, error: TobanError, now: float) -> None:
        """This coordinator answered with an error; only a denial counts."""
        if error.code is ErrorCode.INCARNATION_UNKNOWN:
            # One coordinator may be reached by several addresses.
            self._denied[str(error.detail.get("coordinator") or address)] = now
            self._answered.pop(address, None)

    def judge(self, error: TobanError, now: float) -> TobanError:
        """What to raise after no coordinator answered well: `error`, or UNAVAILABLE while a denial is not believed yet.

        It is believed when a second coordinator agrees, or when no other has answered for a lease.
        """
        recent = now - self.lease_seconds
        denied = sorted(who for who, at in self._denied.items() if at >= recent)
        others = [address for address, at in self._answered.items() if at >= recent]
        if error.code is not ErrorCode.INCARNATION_UNKNOWN and not denied:
            return error
        if len(denied) >= 2 or not others:
            return TobanError(ErrorCode.INCARNATION_UNKNOWN, f"not registered; asked: {', '.join(denied)}")
        return TobanError(
            ErrorCode.UNAVAILABLE,
            f"coordinator {', '.join(denied)} does not know this incarnation, but {others[0]} knew it a moment ago: waiting for a second "
            "one that agrees; the first one's PostgreSQL may be a standby or a former primary",
        )
