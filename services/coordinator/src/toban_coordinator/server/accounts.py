"""Accounts: people, groups, rules, sessions, API tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from toban_coordinator.app.people.accounts import Accounts, NewRule
from toban_coordinator.app.people.credentials import Credentials
from toban_coordinator.app.people.oidc_sign_in import OidcSignIn
from toban_coordinator.app.people.own_account import OwnAccount
from toban_coordinator.app.people.sign_in import NewToken, SignedIn, SignIn
from toban_coordinator.server.from_proto import audit_of, page_from_pb
from toban_coordinator.server.person_check import own_call
from toban_domain.access import (
    WORKER,
    Action,
    Effect,
    Person,
    Role,
    Rule,
    Selector,
    access_mark,
    highest_role,
    worker_type_of,
)
from toban_domain.concurrency import SCOPES
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.coordinator_pb2_grpc import AccountsServicer
from toban_transport.convert import fill, timestamp_to_pb
from toban_transport.server import actor_of

Context = Any
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsDeps:
    """The use cases behind this service."""

    accounts: Accounts
    sign_in: SignIn
    oidc: OidcSignIn
    own: OwnAccount
    credentials: Credentials


class AccountsService(AccountsServicer):
    """Any coordinator answers. Each change is in the audit log, in its own transaction."""

    def __init__(self, *, deps: AccountsDeps) -> None:
        self._accounts = deps.accounts
        self._sign_in = deps.sign_in
        self._oidc = deps.oidc
        self._own = deps.own
        self._credentials = deps.credentials

    async def Authenticate(self, request: pb.AuthenticateRequest, _context: Context) -> pb.AuthenticateResponse:
        """A session for a password, or whose session or token it is. Raises UNAUTHENTICATED, RESOURCE_EXHAUSTED."""
        if sum(map(bool, (request.password, request.token, request.session))) != 1:
            raise TobanError(ErrorCode.INVALID_ARGUMENT, "give exactly one of password, token and session")
        if request.password:
            await self._oidc.require_passwords()
            made = await self._sign_in.with_password(
                request.user, request.password, address=request.address, user_agent=request.user_agent
            )
            return _signed_in_to_pb(made)
        if request.session:
            person = await self._credentials.read(request.session, address=request.address)
        else:
            person = await self._sign_in.with_token(request.token, address=request.address)
        return pb.AuthenticateResponse(
            user=person.name,
            role=_role(person),
            worker_type=worker_type_of(person),
            access=access_mark(person),
            rules=map(_own_rule_to_pb, person.rules) if request.session else (),
        )

    async def SignOut(self, request: pb.SignOutRequest, _context: Context) -> pb.SignOutResponse:
        """Ends a session, or all of its person."""
        return pb.SignOutResponse(ended=await self._sign_in.sign_out(request.session, everywhere=request.everywhere))

    async def GetAccountsState(
        self, _request: pb.GetAccountsStateRequest, _context: Context
    ) -> pb.GetAccountsStateResponse:
        """Whether there is an administrator, and how people sign in."""
        return pb.GetAccountsStateResponse(
            has_administrator=await self._accounts.has_administrator(),
            oidc_name=self._oidc.rules.name if self._oidc.rules is not None else "",
            passwords_off=await self._oidc.passwords_off(),
        )

    async def StartOidcSignIn(
        self, _request: pb.StartOidcSignInRequest, _context: Context
    ) -> pb.StartOidcSignInResponse:
        """Where the browser goes, with a nonce. Raises RESOURCE_INVALID_STATE, PROVIDER_UNAVAILABLE."""
        started = await self._oidc.start()
        return pb.StartOidcSignInResponse(
            authorization_endpoint=started.endpoints.authorization,
            token_endpoint=started.endpoints.token,
            secret_in_body=started.endpoints.secret_in_body,
            client_id=started.client_id,
            scope=started.scope,
            nonce=started.nonce,
            issuer=started.issuer,
        )

    async def SignInWithOidc(self, request: pb.SignInWithOidcRequest, _context: Context) -> pb.AuthenticateResponse:
        """A session for an ID token. Raises UNAUTHENTICATED, PERMISSION_DENIED, RESOURCE_EXHAUSTED, PROVIDER_UNAVAILABLE."""
        made = await self._oidc.finish(
            request.id_token, request.nonce, address=request.address, user_agent=request.user_agent
        )
        return _signed_in_to_pb(made)

    async def LinkUser(self, request: pb.LinkUserRequest, context: Context) -> pb.AccountsChange:
        """A subject of a provider signs in to an account."""
        issuer = self._oidc.linkable_issuer(request.issuer)
        await self._accounts.link(request.name, issuer=issuer, subject=request.subject, **audit_of(request, context))
        return pb.AccountsChange()

    async def UnlinkUser(self, request: pb.UnlinkUserRequest, context: Context) -> pb.AccountsChange:
        """It does not any more."""
        # Also of a provider that is not used any more.
        issuer = request.issuer or (self._oidc.rules.issuer if self._oidc.rules is not None else "")
        await self._accounts.unlink(request.name, issuer=issuer, **audit_of(request, context))
        return pb.AccountsChange()

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
        page, people, linked = await self._accounts.list_users(page_from_pb(request.page))
        users = [_user_to_pb(row, people.get(row["name"]), linked) for row in page.rows]
        return pb.ListUsersResponse(users=users, next_cursor=page.next_cursor)

    async def AddUser(self, request: pb.AddUserRequest, context: Context) -> pb.AccountsChange:
        """An account without rights."""
        await self._accounts.add_user(
            request.name, display_name=request.display_name, password=request.password, **audit_of(request, context)
        )
        return pb.AccountsChange()

    async def UpdateUser(self, request: pb.UpdateUserRequest, context: Context) -> pb.AccountsChange:
        """Enabled, disabled, or with another password."""
        if request.HasField("password"):
            await self._accounts.set_password(request.name, request.password, **audit_of(request, context))
        if request.HasField("enabled"):
            await self._accounts.set_enabled(request.name, enabled=request.enabled, **audit_of(request, context))
        return pb.AccountsChange()

    async def DeleteUser(self, request: pb.DeleteUserRequest, context: Context) -> pb.AccountsChange:
        """An account with rules, sessions and tokens."""
        await self._accounts.delete_user(request.name, **audit_of(request, context))
        return pb.AccountsChange()

    async def EndSessions(self, request: pb.EndSessionsRequest, context: Context) -> pb.SignOutResponse:
        """Every session of an account."""
        ended = await self._sign_in.end_sessions(request.user, **audit_of(request, context))
        return pb.SignOutResponse(ended=ended)

    async def ListGroups(self, _request: pb.ListGroupsRequest, _context: Context) -> pb.ListGroupsResponse:
        """Groups by name."""
        return pb.ListGroupsResponse(groups=[pb.Group(**row) for row in await self._accounts.list_groups()])

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Context) -> pb.AccountsChange:
        """A new group, one less, or a member more or less."""
        about = audit_of(request, context)
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
        made = await self._accounts.add_rule(rule, **audit_of(request, context))
        return pb.AddRuleResponse(id=made)

    async def RemoveRule(self, request: pb.RemoveRuleRequest, context: Context) -> pb.AccountsChange:
        """A rule less."""
        await self._accounts.remove_rule(request.id, **audit_of(request, context))
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
        new = _new_token(request, request.user)
        secret, number, ends_at = await self._sign_in.create_token(new, actor=actor_of(context))
        return pb.CreateTokenResponse(id=number, secret=secret, ends_at=timestamp_to_pb(ends_at))

    async def ListTokens(self, request: pb.ListTokensRequest, _context: Context) -> pb.ListTokensResponse:
        """Tokens, the newest first."""
        return pb.ListTokensResponse(
            tokens=[_token_to_pb(row) for row in await self._sign_in.list_tokens(request.user)]
        )

    async def RevokeToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.AccountsChange:
        """Revokes a token."""
        await self._sign_in.revoke_token(request.id, **audit_of(request, context))
        return pb.AccountsChange()

    async def ChangeOwnPassword(self, request: pb.ChangeOwnPasswordRequest, _context: Context) -> pb.SignOutResponse:
        """Another password; how many sessions ended."""
        return pb.SignOutResponse(ended=await self._own.change_password(own_call(), request.current, request.password))

    async def ListOwnSessions(
        self, _request: pb.ListOwnSessionsRequest, _context: Context
    ) -> pb.ListOwnSessionsResponse:
        """Those that are good."""
        rows = await self._own.list_sessions(own_call())
        return pb.ListOwnSessionsResponse(sessions=[fill(pb.UserSession, row) for row in rows])

    async def EndOwnSession(self, request: pb.EndOwnSessionRequest, _context: Context) -> pb.AccountsChange:
        """One session less."""
        await self._own.end_session(own_call(), request.id)
        return pb.AccountsChange()

    async def CreateOwnToken(self, request: pb.CreateOwnTokenRequest, _context: Context) -> pb.CreateTokenResponse:
        """A token; its secret is in this answer only."""
        call = own_call()
        secret, number, ends_at = await self._own.create_token(call, _new_token(request, call.person.name))
        return pb.CreateTokenResponse(id=number, secret=secret, ends_at=timestamp_to_pb(ends_at))

    async def ListOwnTokens(self, _request: pb.ListOwnTokensRequest, _context: Context) -> pb.ListTokensResponse:
        """Tokens, the newest first."""
        rows = await self._sign_in.list_tokens(own_call().person.name)
        return pb.ListTokensResponse(tokens=[_token_to_pb(row) for row in rows])

    async def RevokeOwnToken(self, request: pb.RevokeTokenRequest, context: Context) -> pb.AccountsChange:
        """Revokes a token."""
        await self._sign_in.revoke_token(request.id, user=own_call().person.name, **audit_of(request, context))
        return pb.AccountsChange()


def _signed_in_to_pb(made: SignedIn) -> pb.AuthenticateResponse:
    ends_at = timestamp_to_pb(made.ends_at)
    return pb.AuthenticateResponse(user=made.person.name, role=_role(made.person), session=made.secret, ends_at=ends_at)


def _role(person: Person | None) -> str:
    return "" if person is None else highest_role(person) or ""


def _choice(kind: type[E], name: str, given: str) -> E:
    try:
        return kind(given)
    except ValueError:
        message = f"there is no {name} {given[:64]!r}; use {', '.join(kind)}"
        raise TobanError(ErrorCode.INVALID_ARGUMENT, message) from None


def _new_token(request: pb.CreateTokenRequest | pb.CreateOwnTokenRequest, user: str) -> NewToken:
    role, selector = _choice(Role, "role", request.role), _selector_from_pb(request.selector, tokens=True)
    return NewToken(user=user, name=request.name, role=role, selector=selector, days=request.days)


def _selector_from_pb(message: pb.AccessSelector, *, tokens: bool = False) -> Selector:
    """Raises INVALID_ARGUMENT. `tokens`: of a token, which can be for the steps of a type of external workers."""
    scopes = (*SCOPES, WORKER) if tokens else SCOPES
    if message.scope not in ("", *scopes) or (message.scope_id and not message.scope):
        known = f"{', '.join(scopes[:-1])} or {scopes[-1]}"
        remedy = "; only tokens can have scope worker" if message.scope == WORKER else ""
        raise TobanError(ErrorCode.INVALID_ARGUMENT, f"a selector has a scope of {known} before its scope_id{remedy}")
    return Selector(job=message.job, labels=dict(message.labels), scope=message.scope, scope_id=message.scope_id)


def _user_to_pb(row: Mapping[str, Any], person: Person | None, linked: Iterable[Mapping[str, Any]]) -> pb.User:
    identities = [fill(pb.UserIdentity, one) for one in linked if one["name"] == row["name"]]
    return fill(pb.User, row, role=_role(person), identities=identities)


def _rule_to_pb(row: Mapping[str, Any]) -> pb.AccessRule:
    return fill(pb.AccessRule, row, selector=fill(pb.AccessSelector, row))


def _own_rule_to_pb(rule: Rule) -> pb.AccessRule:
    selector = fill(pb.AccessSelector, rule.selector)
    return pb.AccessRule(id=rule.id, effect=rule.effect, role=rule.role, selector=selector)


def _token_to_pb(row: Mapping[str, Any]) -> pb.ApiToken:
    return fill(pb.ApiToken, row, selector=fill(pb.AccessSelector, row))
