"""What people do with their own account, whatever their role: password, sessions, API tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from toban_coordinator.app.people.accounts import hash_secret
from toban_coordinator.app.people.credentials import actor_name
from toban_coordinator.app.people.passwords import Passwords, check_password
from toban_coordinator.app.people.sign_in import NewToken, SignIn
from toban_coordinator.app.people.sign_in_throttle import forgive
from toban_coordinator.decide.people.sign_in import IDLE
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.people import accounts, sessions
from toban_domain.access import Person, highest_role
from toban_domain.errors import ErrorCode, TobanError
from toban_store.pool import Pool
from toban_store.tx import Row, autocommit, tx


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCall:
    """A call of a person about the own account: with which credential, and from where."""

    person: Person
    secret: str = field(repr=False)
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAccount:
    """Each change is in the audit log as one of the person."""

    pool: Pool
    passwords: Passwords
    sign_in: SignIn

    async def change_password(self, call: OwnCall, current: str, password: str) -> int:
        """How many sessions ended: all of the account. Wrong passwords count as failed sign-ins.

        Raises INVALID_ARGUMENT, UNAUTHENTICATED, RESOURCE_EXHAUSTED, RESOURCE_INVALID_STATE without a password, CONFLICT.
        """
        name = call.person.name
        if not call.person.has_password:
            message = (
                f"the account {name} has no password; an administrator sets the first one (toban user password {name})"
            )
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
        check_password(password, name)
        if password == current:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "the new password is the present one; choose another one")
        try:
            checked = await self.sign_in.check(name, current, address=call.address)
        except TobanError as error:
            if error.code is ErrorCode.UNAUTHENTICATED:
                raise TobanError(ErrorCode.UNAUTHENTICATED, "the present password is wrong") from None
            raise
        hashed = await self.passwords.hash(password)
        async with tx(self.pool) as t:
            await forgive(t, checked.keys, known=checked.known)
            if not await accounts.change_password(t, name, before=checked.stored, password_hash=hashed):
                raise TobanError(ErrorCode.CONFLICT, f"the password of {name} was changed meanwhile; sign in again")
            ended = await sessions.revoke_sessions(t, name)
            after = {"sessions": ended}
            await audit.note(t, actor_name(call.person), "change_password", f"user {name}", after=after)
        return ended

    async def list_sessions(self, call: OwnCall) -> list[Row]:
        """Those that are good, the newest first."""
        async with autocommit(self.pool) as t:
            return await sessions.good_sessions(t, call.person.name, current=hash_secret(call.secret), idle=IDLE)

    async def end_session(self, call: OwnCall, session_id: int) -> None:
        """Raises NOT_FOUND for one that has ended or is of another account."""
        async with tx(self.pool) as t:
            if not await sessions.end_session(t, session_id, user=call.person.name):
                message = f"{call.person.name} has no open session {session_id}; `toban user sessions` lists them"
                raise TobanError(ErrorCode.NOT_FOUND, message)
            await audit.note(t, actor_name(call.person), "end_session", f"session {session_id}")

    async def create_token(self, call: OwnCall, new: NewToken) -> tuple[str, int, datetime]:
        """Secret (given here once), number and end. Raises as SignIn.create_token, and PERMISSION_DENIED for a higher role."""
        highest = highest_role(call.person)
        if highest is None or new.role.rank > highest.rank:
            message = f"{call.person.name} may not give a token role {new.role}: the highest role of the account is {highest or 'none'}"
            raise TobanError(ErrorCode.PERMISSION_DENIED, message)
        return await self.sign_in.create_token(new, actor=actor_name(call.person), maker=call.person.ceiling)
