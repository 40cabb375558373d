"""Settings of a coordinator process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import NoDecode

from toban_domain.oidc import Grants, check_issuer, parse_grants
from toban_runtime.config import Addresses, ServiceConfig
from toban_runtime.config_checks import ConfigError
from toban_runtime.http_connection import check_ca_file

_EXAMPLE = """'{"toban-admins": "admin", "developers": "operator group:developers"}'"""


def _grants(value: Any) -> dict[str, Grants]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"is not JSON ({error}); write such as {_EXAMPLE}") from None
    if not isinstance(found, dict) or not all(isinstance(text, str | Grants) for text in found.values()):
        raise ValueError(f"is not a JSON object with a text for each group; write such as {_EXAMPLE}")
    return {group: text if isinstance(text, Grants) else parse_grants(text) for group, text in found.items()}


def _issuer(value: str) -> str:
    if value:
        check_issuer(value)
    return value


GroupGrants = Annotated[dict[str, Grants], NoDecode, BeforeValidator(_grants)]
Issuer = Annotated[str, BeforeValidator(_issuer)]


class CoordinatorConfig(ServiceConfig):
    """A coordinator needs PostgreSQL and Redis; everything else has a default."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("database_url", "redis_url")

    oidc_issuer: Issuer = Field("", description="issuer of the OpenID provider, as its ID tokens name it; unset = none")
    oidc_client_id: str = Field("", description="what the provider calls Toban")
    oidc_name: str = Field("", max_length=60, description="name of the provider on the sign-in page; unset = its host")
    oidc_scope: str = Field("openid profile email", description="scopes that the site asks the provider for")
    oidc_groups_claim: str = Field("groups", min_length=1, description="claim of the ID token that lists groups")
    oidc_groups: GroupGrants = Field(
        default_factory=dict, description="JSON: group at the provider → roles and group:NAME here"
    )
    oidc_create_accounts: bool = Field(
        False, description="makes an account at the first sign-in of a person whose groups give something"
    )
    oidc_session_minutes: int = Field(
        480, ge=5, le=720, description="longest session after a sign-in with the provider"
    )
    oidc_ca_file: Path | None = Field(
        None, description="PEM file of the authorities that the provider's certificate may have"
    )
    signer: Addresses = Field(
        (), description="host:port of the signer; unset = machines cannot join with an invite (docs/joining.md)"
    )
    password_sign_in: bool = Field(
        True, description="false = passwords are refused while an administrator can sign in with the provider"
    )

    @field_validator("oidc_ca_file")
    @classmethod
    def _check_ca_file(cls, path: Path | None) -> Path | None:
        if path is not None:
            check_ca_file(path)
        return path

    @property
    def oidc_shown(self) -> str:
        """Name of the provider for people."""
        return self.oidc_name or urlsplit(self.oidc_issuer).hostname or ""

    @model_validator(mode="after")
    def _check_oidc(self) -> CoordinatorConfig:
        if bool(self.oidc_issuer) != bool(self.oidc_client_id):
            unset = "SCHEDULER_OIDC_CLIENT_ID" if self.oidc_issuer else "SCHEDULER_OIDC_ISSUER"
            raise ConfigError(
                f"{unset}: not set in the environment; an OpenID provider needs its issuer and our client id"
            )
        if "openid" not in self.oidc_scope.split():
            raise ConfigError("SCHEDULER_OIDC_SCOPE: lacks openid, without which there is no ID token; add it")
        if not self.password_sign_in and not self.oidc_issuer:
            raise ConfigError(
                "SCHEDULER_PASSWORD_SIGN_IN: false without an OpenID provider; set SCHEDULER_OIDC_ISSUER, or true"
            )
        return self
