"""What a coordinator answers about people to the site."""

from __future__ import annotations

from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc
from toban_testing.site_messages import accounts_responses
from toban_transport.server import metadata

SESSION = "5e" * 32
PASSWORD = "correct horse battery"
LINK = "11" * 32


class Accounts(coordinator_pb2_grpc.AccountsServicer):
    """One person, ada, with a password; sessions by secret. Everything that was asked is in `requests`."""

    def __init__(self) -> None:
        self.administrator = True
        self.sessions = {SESSION: "ada"}
        self.bounds: dict[str, dict[str, Any]] = {}
        self.requests: list[Any] = []
        self.refusal: TobanError | None = None
        self.asked: list[tuple[str, str, Any]] = []  # of the other methods: (method, user, request)
        self.own: dict[str, Any] = accounts_responses()
        self.provider: Any = None  # of toban_testing.oidc_provider
        self.passwords_off = False

    async def Authenticate(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        if request.token:
            if request.token not in self.sessions:
                raise TobanError(ErrorCode.UNAUTHENTICATED, "the API token is unknown", detail={"sign_in": True})
            return pb.AuthenticateResponse(user=self.sessions[request.token], **self.bounds[request.token])
        if request.session:
            if request.session not in self.sessions:
                raise TobanError(ErrorCode.UNAUTHENTICATED, "the session has ended", detail={"sign_in": True})
            return pb.AuthenticateResponse(user=self.sessions[request.session], role="admin")
        if (request.user, request.password) != ("ada", PASSWORD):
            raise TobanError(ErrorCode.UNAUTHENTICATED, "user or password is wrong")
        secret = f"{len(self.requests):064x}"
        self.sessions[secret] = request.user
        return pb.AuthenticateResponse(user=request.user, role="admin", session=secret)

    async def SignOut(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        user = self.sessions.pop(request.session, "")
        if request.everywhere:
            self.sessions = {secret: name for secret, name in self.sessions.items() if name != user}
        return pb.SignOutResponse(ended=1)

    async def GetAccountsState(self, request: Any, context: Any) -> Any:
        return pb.GetAccountsStateResponse(
            has_administrator=self.administrator,
            oidc_name="" if self.provider is None else "Example",
            passwords_off=self.passwords_off,
        )

    async def StartOidcSignIn(self, request: Any, context: Any) -> Any:
        if self.provider is None:
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, "no OpenID provider is configured")
        if self.provider.down:
            raise TobanError(ErrorCode.PROVIDER_UNAVAILABLE, "the OpenID provider is not available")
        self.requests.append(request)
        return pb.StartOidcSignInResponse(
            authorization_endpoint=f"{self.provider.issuer}/authorize",
            token_endpoint=f"{self.provider.issuer}/token",
            client_id="toban",
            scope="openid profile",
            nonce=f"nonce-{len(self.requests)}",
            issuer=self.provider.issuer,
        )

    async def SignInWithOidc(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        secret = f"{len(self.requests):064x}"
        self.sessions[secret] = "ada"
        return pb.AuthenticateResponse(user="ada", role="admin", session=secret)

    async def RedeemBootstrapLink(self, request: Any, context: Any) -> Any:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        if request.secret != LINK:
            raise TobanError(ErrorCode.UNAUTHENTICATED, "the one-time link is not good")
        self.administrator = True
        return pb.RedeemBootstrapLinkResponse()


def _own(method: Any) -> Any:
    async def response(self: Accounts, request: Any, context: Any) -> Any:
        self.asked.append((method.name, self.sessions[metadata(context)["toban-credential"]], request))
        answer = self.own.get(method.name) or getattr(pb, method.output_type.name)()
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return response


for _one in pb.DESCRIPTOR.services_by_name["Accounts"].methods:
    if _one.name not in vars(Accounts):
        setattr(Accounts, _one.name, _own(_one))
