"""What use cases about objects that operators name share: errors about a name, facts for the audit log, sealed values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store import object_names
from toban_coordinator.store.secrets import secrets
from toban_coordinator.store.secrets.secrets import SealedRow
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.nearest import nearest
from toban_store.tx import Tx

MAX_SHOWN = 200
MAX_LISTED = 5
_CODES = {
    "job": ErrorCode.JOB_NOT_FOUND,
    "schedule": ErrorCode.SCHEDULE_NOT_FOUND,
    "secret": ErrorCode.SECRET_NOT_FOUND,
    "trigger": ErrorCode.TRIGGER_NOT_FOUND,
}
T = TypeVar("T")


async def not_found(t: Tx, kind: str, name: str, remedy: str = "") -> TobanError:
    """The error for a name that no object of this kind has; `object_names.names` has the kinds. The remedy is the nearest name, else
    `remedy`, by default the command that lists the objects."""
    near, shown = nearest(name, await object_names.names(t, kind)), name[:MAX_SHOWN]
    hint = f"did you mean {near!r}?" if near and near != name else remedy or f"see `toban {kind} list`"
    code = _CODES.get(kind, ErrorCode.NOT_FOUND)
    return TobanError(
        code, f"there is no {kind} {shown!r}; {hint}", detail={kind.replace(" ", "_"): shown, "near": near}
    )


def changed(kind: str, name: str) -> TobanError:
    """CONFLICT: another call changed the object since this one read it."""
    message = f"{kind} {name!r} was changed at the same time; read it and try again"
    return TobanError(ErrorCode.CONFLICT, message)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many others there are, for a message."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def facts(stored: object, *names: str) -> dict[str, Any]:
    """These attributes of a stored object, for the audit log."""
    return {name: getattr(stored, name) for name in names}


async def check_new(t: Tx, kind: str, name: str, *, most: int) -> None:
    """Raises RESOURCE_EXHAUSTED when there are `most` objects of this kind, ALREADY_EXISTS when the name of its sealed value is taken."""
    if len(await object_names.names(t, kind)) >= most:
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
