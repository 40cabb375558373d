"""Set, list, remove and rotate secrets. Each change is in the audit log, without a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from toban_coordinator.app.named_objects import facts, listed, not_found
from toban_coordinator.ports.secrets import SecretKeys
from toban_coordinator.store import object_names
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.definitions import jobs
from toban_coordinator.store.secrets import secrets
from toban_coordinator.store.secrets.secrets import StoredSecret
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.nearest import nearest
from toban_domain.secret import check_name, check_value, owner_problem
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

MAX_JOBS = 100
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretChange:
    """A value to store. Without `jobs`, those that may use the secret stay; `all_jobs`: every job may."""

    name: str
    value: bytes
    jobs: Sequence[str] = ()
    all_jobs: bool = False
    reason: str = ""

    def __repr__(self) -> str:
        return f"SecretChange({self.name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretState:
    """A secret without its value; `readable`: this coordinator has its key."""

    stored: StoredSecret
    readable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How many secrets have another key now, which one, and those that no key opens."""

    rotated: int
    key_id: str
    unreadable: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretOperations:
    """Changes table `secrets`."""

    pool: Pool
    keys: SecretKeys

    async def set(self, change: SecretChange, actor: str) -> SecretState:
        """Raises INVALID_ARGUMENT, JOB_NOT_FOUND, SECRETS_KEY_MISSING."""
        name = check_name(change.name)
        if (owned := owner_problem(name)) is not None:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "; ".join(owned))
        allowed = _jobs(change)
        sealed = self.keys.seal(name, check_value(change.value))
        async with tx(self.pool) as t:
            await _check_jobs(t, allowed or ())
            before = await secrets.stored(t, name)
            await secrets.store(t, name, sealed, jobs=allowed, actor=actor)
            (after,) = await secrets.stored(t, name)
            was = _facts(before[0]) if before else None
            await audit.note(t, actor, "secret.set", f"secret {name}", change.reason, before=was, after=_facts(after))
        _log.info("a secret was set", subject=name, version=after.version, actor=actor)
        return SecretState(stored=after, readable=True)

    async def list(self) -> list[SecretState]:
        """Those of jobs, by name: hooks and webhooks have lists of their own."""
        async with autocommit(self.pool) as t:
            found = await secrets.stored(t)
        known = self.keys.status().ids
        return [SecretState(stored=one, readable=one.key_id in known) for one in found if not _owner(one)]

    async def remove(self, name: str, *, force: bool, reason: str, actor: str) -> None:
        """Raises SECRET_NOT_FOUND, and RESOURCE_INVALID_STATE while jobs name it, unless `force` is set."""
        async with tx(self.pool) as t:
            before = await secrets.stored(t, name)
            if not before or not await secrets.remove(t, name):
                raise await not_found(t, "secret", name)
            if owner := _owner(before[0]):
                message = (
                    f"secret {name!r} is for {owner} alone; run `toban {owner.replace(' ', ' delete ')}` to remove both"
                )
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
            users = before[0].used_by
            if users and not force:
                noun = "jobs" if len(users) > 1 else "job"
                message = f"secret {name!r} is used by {noun} {listed(users)}: their runs would fail; take it out of these jobs first, or use --force"
                raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message, detail={"jobs": list(users)})
            await audit.note(t, actor, "secret.remove", f"secret {name}", reason, before=_facts(before[0]))
        _log.info("a secret was removed", subject=name, actor=actor)

    async def rotate(self, *, reason: str, actor: str) -> Rotation:
        """Encrypts what another key encrypts with the first one. Raises SECRETS_KEY_MISSING."""
        status = self.keys.status()
        if not status.ids:
            raise TobanError(ErrorCode.SECRETS_KEY_MISSING, f"secrets cannot be rotated: {status.problem}")
        key_id, unreadable, done = status.ids[0], [], 0
        async with tx(self.pool) as t:
            for row in await secrets.lock_with_other_key(t, key_id):
                try:
                    sealed = self.keys.seal(row.name, self.keys.open(row.name, row.sealed))
                except TobanError:
                    unreadable.append(row.name)
                    continue
                done += await secrets.reseal(t, row, sealed)
            after = {"key_id": key_id, "rotated": done, "unreadable": unreadable}
            await audit.note(t, actor, "secret.rotate", "secrets", reason, after=after)
        _log.info("secrets were rotated", rotated=done, unreadable=len(unreadable), actor=actor)
        return Rotation(rotated=done, key_id=key_id, unreadable=unreadable)


def _jobs(change: SecretChange) -> Sequence[str] | None:
    if change.all_jobs and change.jobs:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, "give jobs that may use the secret, or all jobs, not both")
    if len(change.jobs) > MAX_JOBS:
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{len(change.jobs)} jobs are given, the limit is {MAX_JOBS}")
    if change.all_jobs:
        return ()
    return sorted(set(change.jobs)) or None


async def _check_jobs(t: Tx, names: Sequence[str]) -> None:
    """A job that is yet to come is no mistake: its definition is refused without the secret. A name that no job can have is one."""
    found = await jobs.heads(t, names) if names else {}
    for name in names:
        if name not in found and nearest(name, await object_names.names(t, "job")):
            raise await not_found(t, "job", name)


def _owner(secret: StoredSecret) -> str:
    """The hook or webhook that has this secret: "hook repo"; "" for one of jobs, whose names have no "/"."""
    return next((user.replace("/", " ", 1) for user in secret.used_by if "/" in user), "")


def _facts(secret: StoredSecret) -> dict[str, object]:
    return facts(secret, "version", "key_id", "jobs")
