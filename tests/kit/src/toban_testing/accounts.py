"""People and tokens of a running stack, made with the certificate of admin-cli."""

from typing import Any

from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_testing.admin_client import AdminClient


def add_user(admin: AdminClient, name: str, role: str, *, password: str = "", **selector: Any) -> None:
    """A new user with this role for every job, or for those that `job` or `labels` select."""
    admin.call(rpc.AccountsStub, "AddUser", pb.AddUserRequest(name=name, password=password))
    rule = pb.AccessRule(user=name, effect="allow", role=role, selector=pb.AccessSelector(**selector))
    admin.call(rpc.AccountsStub, "AddRule", pb.AddRuleRequest(rule=rule))


def add_token(admin: AdminClient, user: str, role: str, *, name: str = "t") -> pb.CreateTokenResponse:
    """A token of a user for a day, with its `secret` and `id`."""
    asked = pb.CreateTokenRequest(user=user, name=name, role=role, days=1)
    made: pb.CreateTokenResponse = admin.call(rpc.AccountsStub, "CreateToken", asked)
    return made


def user_token(admin: AdminClient, name: str, role: str, **selector: Any) -> str:
    """The token of a new user with this role, for the jobs of `add_user`."""
    add_user(admin, name, role, **selector)
    return str(add_token(admin, name, role).secret)
