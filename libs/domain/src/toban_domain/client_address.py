"""Where a client is, as far as it can be told apart from others."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network


def network_of(address: str) -> str:
    """What requests and failures are counted by: an IPv4 address, the /64 of an IPv6 one; "unknown" for anything else."""
    try:
        found = ip_address(address.strip().partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found) if found.version == 4 else str(ip_network((int(found) >> 64 << 64, 64)))
