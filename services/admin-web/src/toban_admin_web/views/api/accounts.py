"""Users, groups, rules and API tokens."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_inputs import AddUser, ChangeOwnPassword, LinkUser, RulesQuery, UnlinkUser, UpdateUser
from toban_admin_web.decide.api_models import Groups, NewToken, Rules, Tokens, UserPage, UserSessions, Verdict
from toban_admin_web.decide.request_input import MAX_NAME, Input, Paged, Reason
from toban_admin_web.views.api.answers import Created, Done, Ended
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_domain.access import Action, Effect, Role

_NAME = Field(min_length=1, max_length=MAX_NAME)
_OF_USER, _OF_GROUP = "Only those of this user.", "Only those of this group."


class JobSelector(Input):
    """Which jobs; empty = everything."""

    job: str = Field(default="", max_length=MAX_NAME)
    labels: dict[str, str] = Field(default_factory=dict)
    scope_id: str = Field(default="", max_length=200)


class Selector(JobSelector):
    """Which jobs; empty = everything."""

    scope: Literal["", "system", "account", "user"] = ""


class TokenSelector(JobSelector):
    """What a token is for; empty = everything."""

    scope: Literal["", "system", "account", "user", "worker"] = Field(
        default="", description="worker: for the external steps of the worker_type `scope_id`, and nothing else."
    )


class AddRule(Reason):
    """A rule of a user or of a group."""

    user: str = Field("", max_length=MAX_NAME)
    group: str = Field("", max_length=MAX_NAME)
    effect: Effect = Effect.ALLOW
    role: Role
    selector: Selector = Selector()

    def request_fields(self) -> dict[str, Any]:
        """With the rule as one field."""
        return {"rule": self.model_dump(exclude={"reason"}), "reason": self.reason}


class CreateOwnToken(Input):
    """A new API token. It may do what its user may and what it is bounded to, whichever is less."""

    name: str = Field("", max_length=MAX_NAME, description="What it is for.")
    role: Role = Field(description="The most that it may do; operator for scope worker.")
    selector: TokenSelector = TokenSelector()
    days: int = Field(90, ge=1, le=366, description="How long it is good.")


class CreateToken(CreateOwnToken):
    """A new API token. It may do what its user may and what it is bounded to, whichever is less."""

    user: str = _NAME


class TokensQuery(Input):
    """Whose tokens."""

    user: str = Field("", max_length=MAX_NAME, description=_OF_USER)


class MayQuery(Input):
    """What the user would do."""

    action: Action
    job: str = Field("", max_length=MAX_NAME)
    scope: Literal["", "system", "account", "user"] = ""
    scope_id: str = Field("", max_length=200)


def _group_change(change: str) -> Any:
    def handle(call: Call) -> Answer:
        return call.ask(Done, {**call.fields(), "change": change})

    return handle


def _of_group(route: str, summary: str, change: str) -> Endpoint:
    return Endpoint(route=route, summary=summary, query=Reason, answer=Done, handle=_group_change(change))


ENDPOINTS = (
    Endpoint(route="GET /users", summary="Accounts by name.", query=Paged, answer=UserPage),
    Endpoint(route="POST /users", summary="Adds an account.", body=AddUser, answer=Done, status=201),
    Endpoint(
        route="PATCH /users/{name}", summary="Enables, disables, or sets a password.", body=UpdateUser, answer=Done
    ),
    Endpoint(route="DELETE /users/{name}", summary="Deletes an account with all it has.", query=Reason, answer=Done),
    Endpoint(
        route="POST /users/{user}/end-sessions",
        summary="Ends every session of an account.",
        body=Reason,
        body_optional=True,
        answer=Ended,
    ),
    Endpoint(
        route="PUT /users/{name}/identity",
        summary="Links an account to a subject of an OpenID provider.",
        body=LinkUser,
        answer=Done,
    ),
    Endpoint(
        route="DELETE /users/{name}/identity",
        summary="Unlinks an account from an OpenID provider, and ends its sessions. Its person gets no new account.",
        query=UnlinkUser,
        answer=Done,
    ),
    Endpoint(
        route="GET /users/{user}/may",
        summary="Whether a user may do something now, and why.",
        query=MayQuery,
        answer=Verdict,
    ),
    Endpoint(route="GET /groups", summary="Groups by name.", answer=Groups),
    _of_group("PUT /groups/{name}", "Adds a group.", "add"),
    _of_group("DELETE /groups/{name}", "Deletes a group.", "delete"),
    _of_group("PUT /groups/{name}/members/{user}", "Adds a member.", "join"),
    _of_group("DELETE /groups/{name}/members/{user}", "Removes a member.", "leave"),
    Endpoint(route="GET /rules", summary="Rules by number.", query=RulesQuery, answer=Rules),
    Endpoint(route="POST /rules", summary="Adds a rule.", body=AddRule, answer=Created, status=201),
    Endpoint(route="DELETE /rules/{id}", summary="Removes a rule.", query=Reason, answer=Done),
    Endpoint(route="GET /tokens", summary="API tokens, newest first.", query=TokensQuery, answer=Tokens),
    Endpoint(
        route="POST /tokens",
        summary="Makes an API token; its secret is in this answer only.",
        body=CreateToken,
        answer=NewToken,
        status=201,
    ),
    Endpoint(route="DELETE /tokens/{id}", summary="Revokes an API token.", query=Reason, answer=Done),
    Endpoint(
        route="POST /account/password",
        summary="Changes the own password and ends every own session.",
        body=ChangeOwnPassword,
        answer=Ended,
    ),
    Endpoint(route="GET /account/sessions", summary="Own sessions, newest first.", answer=UserSessions),
    Endpoint(route="DELETE /account/sessions/{id}", summary="Ends an own session.", answer=Done),
    Endpoint(route="GET /account/tokens", summary="Own API tokens, newest first.", answer=Tokens),
    Endpoint(
        route="POST /account/tokens",
        summary="Makes an own API token; its secret is in this answer only.",
        body=CreateOwnToken,
        answer=NewToken,
        status=201,
    ),
    Endpoint(route="DELETE /account/tokens/{id}", summary="Revokes an own API token.", query=Reason, answer=Done),
)
