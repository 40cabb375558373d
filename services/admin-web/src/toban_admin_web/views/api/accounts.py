"""Users, groups, rules and API tokens."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from toban_admin_web.decide.answer import Answer, Done
from toban_admin_web.decide.api_models import Created, NewToken, Verdict
from toban_admin_web.decide.request_input import MAX_NAME, Input, Reason
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_domain.access import Action, Effect, Role

_NAME = Field(min_length=1, max_length=MAX_NAME)


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
    Endpoint.of("POST /users", status=201),
    Endpoint(
        route="GET /users/{user}/may",
        summary="Whether a user may do something now, and why.",
        query=MayQuery,
        answer=Verdict,
    ),
    _of_group("PUT /groups/{name}", "Adds a group.", "add"),
    _of_group("DELETE /groups/{name}", "Deletes a group.", "delete"),
    _of_group("PUT /groups/{name}/members/{user}", "Adds a member.", "join"),
    _of_group("DELETE /groups/{name}/members/{user}", "Removes a member.", "leave"),
    Endpoint(route="POST /rules", summary="Adds a rule.", body=AddRule, answer=Created, status=201),
    Endpoint(
        route="POST /tokens",
        summary="Makes an API token; its secret is in this answer only.",
        body=CreateToken,
        answer=NewToken,
        status=201,
    ),
    Endpoint(
        route="POST /account/tokens",
        summary="Makes an own API token; its secret is in this answer only.",
        body=CreateOwnToken,
        answer=NewToken,
        status=201,
    ),
)
