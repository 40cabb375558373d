"""How often an executor says that it is there, and how long it waits for an answer."""

# So many heartbeats in a lease at least, whatever the setting says: it may have been made for longer leases than this one.
LEAST_A_LEASE = 3
MOST_CALL_SECONDS = 1.0
# So many calls without an answer fit into a lease at least: half of them after the last beat that the lease has room for.
CALLS_A_LEASE = 6
AVOID_SECONDS = 10.0
"""So long a coordinator that did not answer in time is asked last."""


def heartbeat_seconds(wanted: float, *, lease_ms: int, margin_ms: int) -> float:
    """The time between two heartbeats: as wanted, and never too long for the lease that this incarnation registered with."""
    return min(wanted, (lease_ms - margin_ms) / 1000 / LEAST_A_LEASE)


def call_seconds(*, lease_ms: int, margin_ms: int) -> float:
    """How long one coordinator may take for a heartbeat before the next one is asked: a frozen one costs no lease."""
    return min(MOST_CALL_SECONDS, (lease_ms - margin_ms) / 1000 / CALLS_A_LEASE)
