"""Invites, and the machines that join with them. Each is in the audit log (docs/joining.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toban_coordinator.app.named_objects import not_found
from toban_coordinator.app.people.accounts import hash_secret
from toban_coordinator.ports.signer import Signed, Signing
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.executors import executor_certificates, executor_groups, executor_invites
from toban_coordinator.store.executors.executor_invites import Invite
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import DEFAULT_GROUP
from toban_observability.logs import get_logger
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_store.tx import autocommit, tx

TOKEN_PREFIX = "toban_join_"
TOKEN_BYTES = 32
HOUR = 3600
LONGEST_SECONDS = 7 * 24 * HOUR
MOST_USES = 1000
MAX_MACHINE = 200
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a machine needs beside its key to be an executor."""

    signed: Signed
    group: str
    coordinators: Sequence[str]
    log_archivers: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invites:
    """Changes table `executor_invites`, and adds to `executor_certificates`."""

    pool: Pool
    ids: IdSource
    signer: Signing
    coordinators: Callable[[], Sequence[str]]
    log_archivers: Sequence[str]

    async def add(self, *, group: str, uses: int, valid_seconds: int, reason: str, actor: str) -> tuple[Invite, str]:
        """A new invite and its token. Raises INVALID_ARGUMENT, NOT_FOUND for a group that does not exist."""
        group, uses, seconds = group or DEFAULT_GROUP, uses or 1, valid_seconds or HOUR
        if not 1 <= uses <= MOST_USES or not 60 <= seconds <= LONGEST_SECONDS:
            message = f"an invite has 1 to {MOST_USES} uses and is good for 60 to {LONGEST_SECONDS} seconds"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        token = TOKEN_PREFIX + self.ids.token_hex(TOKEN_BYTES)
        async with tx(self.pool) as t:
            await executor_groups.hold(t)
            known = await executor_groups.groups(t)
            if group not in known:
                raise await not_found(t, "executor group", group, "see `toban group list`")
            made = await executor_invites.add(
                t, hash_secret(token), group=group, uses=uses, seconds=seconds, reason=reason, actor=actor
            )
            after = {"uses": uses, "ends_at": made.ends_at.isoformat()}
            await audit.note(t, actor, "invite.add", _target(made.id, group), reason, after=after)
        return made, token

    async def list(self) -> list[Invite]:
        """The newest first."""
        async with autocommit(self.pool) as t:
            return await executor_invites.invites(t)

    async def remove(self, number: int, *, reason: str, actor: str) -> None:
        """No machine joins with it any more. Raises NOT_FOUND."""
        async with tx(self.pool) as t:
            group = await executor_invites.remove(t, number)
            if group is None:
                raise TobanError(ErrorCode.NOT_FOUND, f"there is no invite {number}; `toban invite list` has them")
            await audit.note(t, actor, "invite.remove", _target(number, group), reason)

    async def join(self, token: str, request: bytes, *, machine: str, address: str) -> Joined:
        """A certificate for the key of the request. A use counts only when the certificate was signed.

        Raises INVALID_ARGUMENT for a name of a machine that is none, UNAUTHENTICATED for a token that is not good, and what Signing raises.
        """
        machine = _checked(machine)
        async with autocommit(self.pool) as t:
            found = await executor_invites.find(t, hash_secret(token))
        if found is None:
            raise _not_good()
        number, group = found
        signed = await self.signer.sign(request, group=group)
        async with tx(self.pool) as t:
            if not await executor_invites.take(t, number, machine):
                raise _not_good()
            await executor_certificates.add(
                t, signed.serial, group=group, invite=number, machine=machine, ends_at=signed.ends_at
            )
            about = {"machine": machine, "address": address, "serial": signed.serial}
            after = {**about, "ends_at": signed.ends_at.isoformat()}
            await audit.note(t, f"invite {number}", "executor.join", _target(number, group), after=after)
        _log.info("a machine has joined", invite=number, group=group, machine=machine, address=address)
        return Joined(signed=signed, group=group, coordinators=self.coordinators(), log_archivers=self.log_archivers)


def _checked(machine: str) -> str:
    name = machine.strip()
    if len(name) > MAX_MACHINE or not name.isprintable():
        message = (
            f"the name of a machine has at most {MAX_MACHINE} printable characters; it is what `hostname` prints there"
        )
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
    return name


def _target(number: int, group: str) -> str:
    return f"invite {number} of executor group {group}"


def _not_good() -> TobanError:
    message = "the token of the invite is not good: used, removed or past its end; an administrator makes another with `toban invite add`"
    return TobanError(ErrorCode.UNAUTHENTICATED, message)
