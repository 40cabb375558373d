"""What the configuration says about an OpenID provider: its addresses, and what its groups mean here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from toban_domain.access import Role
from toban_domain.http_call import Target, parse_url

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_GROUP = "group:"
_LOCAL_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Grants:
    """What groups of the provider mean here: roles for everything, and groups of Toban."""

    roles: frozenset[Role] = frozenset()
    groups: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.roles or self.groups)


def parse_endpoint(url: str) -> Target:
    """An address of a provider: https, or http on this very machine. Raises ValueError."""
    target = parse_url(url)
    if target.scheme == "http" and target.host not in _LOOPBACK:
        raise ValueError(f"{target.shown} is not https; only a provider on this machine may be without TLS")
    return target


def check_issuer(url: str) -> None:
    """Raises ValueError for what is no issuer: it is compared as text, so that it has nothing but what the provider writes."""
    parse_endpoint(url)
    if "?" in url or "#" in url:
        raise ValueError(
            "has a query or fragment; give the issuer as `issuer` of the provider's discovery document has it"
        )


def parse_grants(text: str) -> Grants:
    """`operator group:ops` as roles and groups. Raises ValueError."""
    roles, groups = set(), set()
    for word in text.split():
        if word.startswith(_GROUP):
            name = word.removeprefix(_GROUP)
            if not _LOCAL_NAME.fullmatch(name):
                raise ValueError(f"{word!r} names no group; a name has 1 to 64 of a-z, 0-9 and . _ @ -")
            groups.add(name)
        elif word in set(Role):
            roles.add(Role(word))
        else:
            raise ValueError(f"{word!r} is neither one of {', '.join(Role)} nor group:NAME")
    if not roles and not groups:
        raise ValueError("a group of the provider is given nothing")
    return Grants(frozenset(roles), frozenset(groups))


def granted(groups: frozenset[str], mapping: Mapping[str, Grants]) -> Grants:
    """What the groups give together, each by its exact name."""
    found = [mapping[group] for group in groups if group in mapping]
    return Grants(frozenset().union(*(one.roles for one in found)), frozenset().union(*(one.groups for one in found)))
