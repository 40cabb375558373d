"""Accounts: people, groups, rules, sessions, API tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from toban_coordinator.app.accounts import Accounts, NewRule
from toban_coordinator.app.credentials import Credentials
from toban_coordinator.app.sign_in import NewToken, SignIn
from toban_coordinator.server.from_proto import page_from_pb
from toban_domain.access import Action, Effect, Person, Role, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import AccountsServicer
from toban_transport.convert import timestamp_to_pb
from toban_transport.server import actor_of

Context = Any
E = TypeVar("E", bound=StrEnum)
_SCOPES = ("", "system", "account", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsDeps:
    """The use cases behind this service."""

    accounts: Accounts
    sign_in: SignIn
    credentials: Credentials


class AccountsService(AccountsServicer):
    """Any coordinator answers. Each change is in the audit log, in its own transaction."""

    def __init__(self, *, deps: AccountsDeps) -> None:
        self._accounts = deps.accounts
        self._sign_in = deps.sign_in
        self._credentials = deps.credentials

    async def Authenticate(self, request: pb.AuthenticateRequest, _context: Context) -> pb.AuthenticateResponse:
        """A session for a password, or whose session or token it is. Raises UNAUTHENTICATED, RESOURCE_EXHAUSTED."""
        if sum(map(bool, (request.password, request.token, request.session))) != 1:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "give exactly one of password, token and session")
        if request.password:
            made = await self._sign_in.with_password(
                request.user, request.password, address=request.address, user_agent=request.user_agent
            )
            ends_at = timestamp_to_pb(made.ends_at)
            return pb.AuthenticateResponse(
                user=made.person.name, role=_role(made.person), session=made.secret, ends_at=ends_at
            )
        if request.session:
            person = await self._credentials.read(request.session, address=request.address)
        else:
            person = await self._sign_in.with_token(request.token, address=request.address)
        return pb.AuthenticateResponse(user=person.name, role=_role(person))

    async def SignOut(self, request: pb.SignOutRequest, _context: Context) -> pb.SignOutResponse:
        """Ends a session, or all of its person."""
        return pb.SignOutResponse(ended=await self._sign_in.sign_out(request.session, everywhere=request.everywhere))

    async def GetAccountsState(
        self, _request: pb.GetAccountsStateRequest, _context: Context
    ) -> pb.GetAccountsStateResponse:
        """Whether there is an administrator."""
        return pb.GetAccountsStateResponse(has_administrator=await self._accounts.has_administrator())

    async def CreateBootstrapLink(
        self, _request: pb.CreateBootstrapLinkRequest, context: Context
    ) -> pb.CreateBootstrapLinkResponse:
        """A one-time secret for the first administrator."""
        secret, ends_at = await self._accounts.bootstrap_link(actor_of(context))
        return pb.CreateBootstrapLinkResponse(secret=secret, ends_at=timestamp_to_pb(ends_at))

    async def RedeemBootstrapLink(
        self, request: pb.RedeemBootstrapLinkRequest, _context: Context
    ) -> pb.RedeemBootstrapLinkResponse:
        """The first administrator."""
        await self._accounts.redeem_link(
            request.secret, user=request.user, password=request.password, address=request.address
        )
        return pb.RedeemBootstrapLinkResponse()

    async def ListUsers(self, request: pb.ListUsersRequest, _context: Context) -> pb.ListUsersResponse:
        """Accounts by name."""
        page, people = await self._accounts.list_users(page_from_pb(request.page))
        users = [_user_to_pb(row, people.get(row["name"])) for row in page.rows]
        return pb.ListUsersResponse(users=users, next_cursor=page.next_cursor)

    async def AddUser(self, request: pb.AddUserRequest, context: Context) -> pb.AccountsChange:
        """An account without rights."""
        await self._accounts.add_user(
            request.name,
            display_name=request.display_name,
            password=request.password,
            actor=actor_of(context),
            reason=request.reason,
        )
        return pb.AccountsChange()

    async def UpdateUser(self, request: pb.UpdateUserRequest, context: Context) -> pb.AccountsChange:
        """Enabled, disabled, or with another password."""
        actor = actor_of(context)
        if request.HasField("password"):
            await self._accounts.set_password(request.name, request.password, actor=actor, reason=request.reason)
        if request.HasField("enabled"):
            await self._accounts.set_enabled(request.name, enabled=request.enabled, actor=actor, reason=request.reason)
        return pb.AccountsChange()

    async def DeleteUser(self, request: pb.DeleteUserRequest, context: Context) -> pb.AccountsChange:
        """An account with rules, sessions and tokens."""
        await self._accounts.delete_user(request.name, actor=actor_of(context), reason=request.reason)
        return pb.AccountsChange()

    async def EndSessions(self, request: pb.EndSessionsRequest, context: Context) -> pb.SignOutResponse:
        """Every session of an account."""
        ended = await self._sign_in.end_sessions(request.user, actor=actor_of(context), reason=request.reason)
        return pb.SignOutResponse(ended=ended)

    async def ListGroups(self, _request: pb.ListGroupsRequest, _context: Context) -> pb.ListGroupsResponse:
        """Groups by name."""
        return pb.ListGroupsResponse(groups=[pb.Group(**row) for row in await self._accounts.list_groups()])

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Context) -> pb.AccountsChange:
        """A new group, one less, or a member more or less."""
        about: dict[str, str] = {"actor": actor_of(context), "reason": request.reason}
        if request.change == "add":
            await self._accounts.add_group(request.name, **about)
        elif request.change == "delete":
            await self._accounts.delete_group(request.name, **about)
        elif request.change in ("join", "leave"):
            await self._accounts.change_member(request.name, request.user, joins=request.change == "join", **about)
        else:
            message = f"there is no change {request.change!r}; use add, delete, join, leave"
            raise TobanError(ErrorCode.INVALID_ARGUMENT, message)
        return pb.AccountsChange()

    async def ListRules(self, request: pb.ListRulesRequest, _context: Context) -> pb.ListRulesResponse:
        """Rules by number."""
        rows = await self._accounts.list_rules(user=request.user, group=request.group)
        return pb.ListRulesResponse(rules=[_rule_to_pb(row) for row in rows])

    async def AddRule(self, request: pb.AddRuleRequest, context: Context) -> pb.AddRuleResponse:
        """A rule more."""
        rule = NewRule(
            user=request.rule.user,
            group=request.rule.group,
            effect=_choice(Effect, "effect", request.rule.effect),
            role=_choice(Role, "role", request.rule.role),
            selector=_selector_from_pb(request.rule.selector),
        )
        made = await self._accounts.add_rule(rule, actor=actor_of(context), reason=request.reason)
        return pb.AddRuleResponse(id=made)

    async def RemoveRule(self, request: pb.RemoveRuleRequest, context: Context) -> pb.AccountsChange:
        """A rule less."""
        await self._accounts.remove_rule(request.id, actor=actor_of(context), reason=request.reason)
        return pb.AccountsChange()

    async def May(self, request: pb.MayRequest, _context: Context) -> pb.MayResponse:
        """Whether a user may do something, and why."""
        verdict = await self._accounts.may(
            request.user,
            _choice(Action, "action", request.action),
            job=request.job,
            scope=request.scope,
            scope_id=request.scope_id,
        )
        return pb.MayResponse(allowed=verdict.allowed, reason=verdict.reason)

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        """A token; its secret is in this answer only."""
        new = NewToken(
            user=request.user,
            name=request.name,
            role=_choice(Role, "role", request.role),
            selector=_selector_from_pb(request.selector),
            days=request.days,
        )
        secret, number, ends_at = await self._sign_in.create_token(new, actor=actor_of(context))
        return pb.CreateTokenResponse(id=number, secret=secret, ends_at=timestamp_to_pb(ends_at))

    async def ListTokens(self, request: pb.ListTokensRequest, _context: Context) -> pb.ListTokensResponse:
        """Tokens, the newest first."""
        return pb.ListTokensResponse(
            tokens=[_token_to_pb(row) for row in await self._sign_in.list_tokens(request.user)]
        )

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.AccountsChange:
        """A token that is good no more."""
        await self._sign_in.revoke_token(request.id, actor=actor_of(context), reason=request.reason)
        return pb.AccountsChange()


def _role(person: Person | None) -> str:
    roles = [] if person is None else [rule.role for rule in person.rules if rule.effect is Effect.ALLOW]
    highest = max(roles, key=lambda role: role.rank, default="")
    if person is not None and person.ceiling is not None and isinstance(highest, Role):
        return min(highest, person.ceiling.role, key=lambda role: role.rank)
    return highest


def _choice(kind: type[E], name: str, given: str) -> E:
    try:
        return kind(given)
    except ValueError:
        message = f"there is no {name} {given[:64]!r}; use {', '.join(kind)}"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None


def _selector_from_pb(message: pb.AccessSelector) -> Selector:
    if message.scope not in _SCOPES or (message.scope_id and not message.scope):
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, "a selector has a scope of system, account or user before its scope_id"
        )
    return Selector(job=message.job, labels=dict(message.labels), scope=message.scope, scope_id=message.scope_id)


def _selector_to_pb(row: Mapping[str, Any]) -> pb.AccessSelector:
    return pb.AccessSelector(job=row["job"], labels=row["labels"], scope=row["scope"], scope_id=row["scope_id"])


def _user_to_pb(row: Mapping[str, Any], person: Person | None) -> pb.User:
    return pb.User(
        name=row["name"],
        role=_role(person),
        enabled=row["enabled"],
        display_name=row["display_name"],
        has_password=row["has_password"],
        groups=row["groups"],
        created_at=timestamp_to_pb(row["created_at"]),
        created_by=row["created_by"],
        last_seen_at=timestamp_to_pb(row["last_seen_at"]),
    )


def _rule_to_pb(row: Mapping[str, Any]) -> pb.AccessRule:
    return pb.AccessRule(
        id=row["id"],
        user=row["user"],
        group=row["group"],
        effect=row["effect"],
        role=row["role"],
        selector=_selector_to_pb(row),
        created_at=timestamp_to_pb(row["created_at"]),
        created_by=row["created_by"],
    )


def _token_to_pb(row: Mapping[str, Any]) -> pb.ApiToken:
    return pb.ApiToken(
        id=row["id"],
        user=row["user"],
        name=row["name"],
        role=row["role"],
        selector=_selector_to_pb(row),
        created_at=timestamp_to_pb(row["created_at"]),
        created_by=row["created_by"],
        ends_at=timestamp_to_pb(row["ends_at"]),
        last_used_at=timestamp_to_pb(row["last_used_at"]),
        last_used_from=row["last_used_from"],
        revoked=row["revoked"],
    )
