"""From the credential of a call to its person, remembered for a moment so that each call does not ask PostgreSQL."""

from __future__ import annotations

from cachetools import TTLCache

from toban_coordinator.app.people.accounts import hash_secret
from toban_coordinator.app.people.sign_in import SignIn
from toban_domain.access import TOKEN_PREFIX, Person
from toban_runtime.clock import Clock

# A revoked session or token, a changed rule and a disabled account have their effect after this long at most, seconds.
REMEMBERED_SECONDS = 1.0
_KEPT = 4096


class Credentials:
    """Sessions and API tokens of calls."""

    def __init__(self, *, sign_in: SignIn, clock: Clock) -> None:
        self._sign_in = sign_in
        self._known: TTLCache[bytes, Person] = TTLCache(_KEPT, REMEMBERED_SECONDS, timer=clock.monotonic)

    async def person(self, secret: str, *, address: str) -> Person:
        """Whom it stands for. Raises UNAUTHENTICATED. `address` is where the person is, for the last use of a token."""
        found = self._known.get(hash_secret(secret))
        return found if found is not None else await self.read(secret, address=address)

    async def read(self, secret: str, *, address: str) -> Person:
        """The same, asked of PostgreSQL in any case, and remembered for the calls that follow."""
        if secret.startswith(TOKEN_PREFIX):
            found = await self._sign_in.with_token(secret, address=address)
        else:
            found = await self._sign_in.with_session(secret)
        self._known[hash_secret(secret)] = found
        return found


def actor_name(person: Person) -> str:
    """The person as the audit has it: `user ada`, or `user ada, token 3`."""
    return f"user {person.name}" + (f", token {person.ceiling.id}" if person.ceiling is not None else "")
