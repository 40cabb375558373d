"""The OpenID provider, as sign-ins need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where a browser signs in, and where its code is exchanged. `secret_in_body`: the provider takes no secret in a header."""

    authorization: str
    token: str
    secret_in_body: bool


class OidcProvider(Protocol):
    """Raises TobanError PROVIDER_UNAVAILABLE when the provider does not answer, or not as OpenID Connect has it."""

    async def endpoints(self) -> Endpoints:
        """From its discovery document."""
        ...

    async def claims(self, id_token: str) -> Mapping[str, Any]:
        """What a token says. Raises UNAUTHENTICATED unless a key of the provider signed it."""
        ...
