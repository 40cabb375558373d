"""How often an executor says that it is there."""

# So many heartbeats in a lease at least, whatever the setting says: it may have been made for longer leases than this one.
LEAST_A_LEASE = 3


def heartbeat_seconds(wanted: float, *, lease_ms: int, margin_ms: int) -> float:
    """The time between two heartbeats: as wanted, and never too long for the lease that this incarnation registered with."""
    return min(wanted, (lease_ms - margin_ms) / 1000 / LEAST_A_LEASE)
