"""What use cases about objects that operators name share: errors about a name, facts for the audit log, sealed values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store import secrets
from toban_coordinator.store.secrets import SealedRow
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.nearest import nearest
from toban_store.tx import Tx

MAX_SHOWN = 200
T = TypeVar("T")


def not_found(
    kind: str,
    name: str,
    known: Iterable[str],
    remedy: str = "",
    *,
    code: ErrorCode = ErrorCode.NOT_FOUND,
    detail: Mapping[str, object] | None = None,
) -> TobanError:
    """The error for a name that no object of this kind has. Without a near name in `known`, its remedy is `remedy`, or the command that
    lists the objects."""
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near and near != name else remedy or f"see `toban {kind} list`"
    return TobanError(code, f"there is no {kind} {name[:MAX_SHOWN]!r}; {hint}", detail={**(detail or {}), "near": near})


def facts(stored: object, *names: str) -> dict[str, Any]:
    """These attributes of a stored object, for the audit log."""
    return {name: getattr(stored, name) for name in names}


async def check_new(t: Tx, kind: str, name: str, *, count: int, most: int) -> None:
    """Raises RESOURCE_EXHAUSTED when there are `most` objects of this kind, ALREADY_EXISTS when the name of its sealed value is taken."""
    if count >= most:
        raise TobanError(ErrorCode.RESOURCE_EXHAUSTED, f"there are {most} {kind}s, which is the limit; remove one")
    stored = f"{kind}.{name}"
    if await secrets.find(t, [stored]):
        message = f"secret {stored!r} exists and is not of a {kind}; choose another name, or remove that secret"
        raise TobanError(ErrorCode.ALREADY_EXISTS, message)


async def seal(t: Tx, keys: SecretKeys, kind: str, name: str, value: Mapping[str, object], *, actor: str) -> None:
    """Stores the value of a hook or webhook as secret `KIND.NAME`. The secret is for `KIND/NAME`, which is the name of no job: no job can
    have it. Raises SECRETS_KEY_MISSING."""
    stored = f"{kind}.{name}"
    sealed = keys.seal(stored, json.dumps(value).encode())
    await secrets.store(t, stored, sealed, jobs=[f"{kind}/{name}"], actor=actor)


def unseal(keys: SecretKeys, rows: Mapping[str, SealedRow], stored: str, read: Callable[[Any], T], remedy: str) -> T:
    """What `read` takes from the sealed value of a hook or webhook; `rows` are of `secrets.find`.

    Raises SECRETS_KEY_MISSING, SECRET_NOT_FOUND when the secret is gone or has another form.
    """
    row = rows.get(stored)
    if row is None:
        raise TobanError(ErrorCode.SECRET_NOT_FOUND, f"secret {stored!r} is gone; {remedy}")
    try:
        return read(json.loads(keys.open(stored, row.sealed)))
    except (ValueError, LookupError, TypeError):
        message = f"secret {stored!r} was not written by `toban {stored.partition('.')[0]} set`; {remedy}"
        raise TobanError(ErrorCode.SECRET_NOT_FOUND, message) from None
