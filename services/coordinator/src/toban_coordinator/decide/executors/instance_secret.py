"""For which incarnations of its instance an executor may speak, by the secret of their state directory (docs/fencing.md 3.8).

The instance's secret is the first one that any of its incarnations has registered with. Incarnations without one are of a release before secrets:
until the instance registers with a secret, its name alone speaks for them.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """One incarnation of an instance. `secret_hash` is None for one that registered without a secret; `off`: its row is closed."""

    incarnation: str
    secret_hash: bytes | None = field(repr=False)
    off: bool


def same_secret(stored: bytes | None, presented: bytes | None) -> bool:
    """True when both are hashes of one secret; the time that it takes tells nothing about either."""
    return stored is not None and presented is not None and hmac.compare_digest(stored, presented)


def speaks_for(rows: Sequence[InstanceRow], presented: bytes | None) -> frozenset[str]:
    """The incarnations whose results and whose death the presenter of this hash may report. `rows` in order of registration."""
    by_name = _owns_name(rows, presented)
    return frozenset(
        row.incarnation
        for row in rows
        if (by_name if row.secret_hash is None else same_secret(row.secret_hash, presented))
    )


def may_register(rows: Sequence[InstanceRow], presented: bytes | None) -> bool:
    """False while an incarnation that has proved the instance's secret is not off, and the presenter does not prove it.

    Later it may: an executor whose secret was lost, or one of an earlier release. It speaks for no other incarnation.
    """
    if _owns_name(rows, presented):
        return True
    secret = _secret_of(rows)
    return all(row.off for row in rows if same_secret(row.secret_hash, secret))


def _owns_name(rows: Sequence[InstanceRow], presented: bytes | None) -> bool:
    secret = _secret_of(rows)
    return secret is None or same_secret(secret, presented)


def _secret_of(rows: Sequence[InstanceRow]) -> bytes | None:
    return next((row.secret_hash for row in rows if row.secret_hash is not None), None)
