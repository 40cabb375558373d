"""Which addresses `http` steps and webhooks may connect to: the list of an operator, and the ranges that are closed unless it names them.

A name in the list is trusted to mean a public or a private address. Loopback, link-local and other special addresses need an entry
for the address or its network, and metadata services of clouds one for exactly that address. Without `public` in the list,
public addresses need an entry too. The list judges addresses, never the way in which a URL writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

PUBLIC, NONE = "public", "none"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAME = re.compile(r"(\*\.)?(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_METADATA = frozenset(
    map(
        ip_address,
        (
            *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
            *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
        ),
    )
)
_KINDS: Sequence[tuple[str, Sequence[Network]]] = tuple(
    (kind, tuple(map(ip_network, networks.split())))
    for kind, networks in (
        ("loopback", "127.0.0.0/8 ::1/128"),
        ("link-local", "169.254.0.0/16 fe80::/10"),
        ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 fc00::/7"),
        ("multicast", "224.0.0.0/4 ff00::/8"),
        ("reserved", "0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24"),
        ("reserved", "203.0.113.0/24 240.0.0.0/4 2001::/23 2001:db8::/32 2002::/16 3fff::/20"),
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# IPv6 forms with an IPv4 address in their last 32 bits: compatible, translated, local NAT64.
_EMBEDDED = tuple(map(IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48")))


class Entry(NamedTuple):
    """One entry: a network, or a host name (`*.` before it = every name below), or neither: `public`. `port` 0 = every port."""

    name: str = ""
    network: Network | None = None
    port: int = 0


def parse_access(text: str) -> tuple[Entry, ...]:
    """The entries, separated by commas; `none` = nothing is allowed. Raises ValueError that names the wrong one."""
    return (
        () if text.strip() == NONE else tuple(_entry(part.strip().lower()) for part in text.split(",") if part.strip())
    )


def _entry(text: str) -> Entry:
    if text == PUBLIC:
        return Entry()
    try:
        return Entry(network=ip_network(text))
    except ValueError as error:
        if "/" in text and "//" not in text:
            raise ValueError(f"{text!r}: {error}; write a network as 10.0.0.0/8") from None
    host, colon, port = text.rpartition(":") if text.rpartition(":")[2].isdecimal() else (text, "", "0")
    if colon and not 0 < int(port) <= 65535:
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    try:
        return Entry(network=ip_network(host.removeprefix("[").removesuffix("]")), port=int(port))
    except ValueError:
        if not _NAME.fullmatch(host) or host.rpartition(".")[2].isdecimal():
            raise ValueError(
                f"{text!r} is neither a host name, an address nor a network; write such as public,api.example.com,10.0.0.0/8"
            ) from None
        return Entry(name=host, port=int(port))


def denial(entries: Sequence[Entry], *, host: str, address: str, port: int, setting: str) -> str:
    """Why a connection to `address`, which `host` resolved to, is refused; empty when it is allowed. `setting` is what has the entries."""
    given = ip_address(address.partition("%")[0])
    plain = _plain(given)
    hidden = _hidden(plain)
    for one in (plain, hidden) if hidden else (plain,):
        kind = kind_of(one)
        if not any(_allows(entry, kind, host=host, address=one, port=port) for entry in entries):
            shown = str(given) if one == given else f"{given}, which means {one}"
            what = f"{kind} address {shown}" if kind != "metadata" else f"metadata service of a cloud at {shown}"
            return f"{host!r} port {port} is the {what}; {setting} has no entry for it"
    return ""


def _allows(entry: Entry, kind: str, *, host: str, address: Address, port: int) -> bool:
    if entry.port not in (0, port):
        return False
    if entry.network is not None:
        exact = entry.network.num_addresses == 1
        return address in entry.network and (exact or kind != "metadata")
    if entry.name.startswith("*."):
        return kind in ("public", "private") and host.endswith(entry.name[1:])
    return kind in ("public", "private") and host == entry.name if entry.name else kind == "public"


def kind_of(address: Address) -> str:
    """public, private, loopback, link-local, multicast, reserved or metadata."""
    if address in _METADATA:
        return "metadata"
    for kind, networks in _KINDS:
        if any(address in network for network in networks):
            return kind
    return "public" if address.version == 4 or address in _GLOBAL_V6 else "reserved"


def not_public(addresses: Sequence[str]) -> list[str]:
    """Those to which packets do not leave for the public network, in whatever form they are written: clear text may go there."""
    return [one for one in addresses if kind_of(_plain(ip_address(one.partition("%")[0]))) != "public"]


def _plain(address: Address) -> Address:
    """The IPv4 address that packets to an IPv6 one reach, where that is certain; else the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _hidden(address: Address) -> IPv4Address | None:
    """The IPv4 address that packets to an IPv6 one may reach by way of a gateway; it must be allowed too."""
    if not isinstance(address, IPv6Address) or int(address) <= 1:
        return None
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _EMBEDDED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
