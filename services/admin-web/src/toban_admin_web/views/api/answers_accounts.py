"""People and what they may, in answers of the API."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from toban_admin_web.views.api.answers import Answer, Page


class UserIdentity(Answer):
    """Who an account is at an OpenID provider."""

    issuer: str
    subject: str
    created_at: datetime | None
    created_by: str
    last_used_at: datetime | None


class User(Answer):
    """An account."""

    name: str
    role: str = Field(description="The highest role of any rule that allows something; '' without one.")
    enabled: bool
    display_name: str
    has_password: bool
    groups: list[str]
    created_at: datetime | None
    created_by: str
    last_seen_at: datetime | None
    identities: list[UserIdentity]


class Group(Answer):
    """Users with common rules."""

    name: str
    members: list[str]


class AccessSelector(Answer):
    """Which jobs a rule or token is for; empty: everything."""

    job: str
    labels: dict[str, str]
    scope: str = Field(description="system | account | user; of a token also worker")
    scope_id: str


class AccessRule(Answer):
    """What a user or group may or may not do."""

    id: int
    user: str = Field(description="A rule is of a user or of a group.")
    group: str
    effect: str = Field(description="allow | deny")
    role: str = Field(description="viewer | operator | editor | admin")
    selector: AccessSelector | None
    created_at: datetime | None
    created_by: str


class ApiToken(Answer):
    """An API token without its secret."""

    id: int
    user: str
    name: str
    role: str
    selector: AccessSelector | None
    created_at: datetime | None
    created_by: str
    ends_at: datetime | None
    last_used_at: datetime | None
    last_used_from: str
    revoked: bool


class NewToken(Answer):
    """A new API token."""

    id: int
    secret: str = Field(description="Shown once; stored as a hash.")
    ends_at: datetime | None


class UserSession(Answer):
    """A sign-in that is good."""

    id: int
    address: str
    user_agent: str
    created_at: datetime | None
    last_used_at: datetime | None
    ends_at: datetime | None
    current: bool = Field(description="The session of this request.")


class Verdict(Answer):
    """Whether a user may do something."""

    allowed: bool
    reason: str


class UserPage(Page):
    """Accounts by name."""

    users: list[User]


class Groups(Answer):
    """Groups by name."""

    groups: list[Group]


class Rules(Answer):
    """Rules by number."""

    rules: list[AccessRule]


class UserSessions(Answer):
    """Own sessions, newest first."""

    sessions: list[UserSession]


class Tokens(Answer):
    """API tokens, newest first."""

    tokens: list[ApiToken]
