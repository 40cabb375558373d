"""Accounts with rules, jobs of two teams, and the decision about calls of people."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.definitions.apply import Apply
from toban_coordinator.app.manifests import ManifestText
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_coordinator.app.people.accounts import Accounts, NewRule
from toban_coordinator.app.people.credentials import Credentials
from toban_coordinator.app.people.passwords import Passwords
from toban_coordinator.app.people.sign_in import NewToken, SignIn
from toban_coordinator.app.placement.fast_path import CurrentFastPath
from toban_coordinator.app.runs.start_runs import RunRequest, StartRuns
from toban_coordinator.server.person_check import PeopleCheck
from toban_domain.access import Effect, Role, Selector
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_proto.v1 import coordinator_pb2 as pb
from toban_runtime.ids import IdSource
from toban_store.pool import Pool
from toban_testing.clock import FakeClock
from toban_transport.person_rules import CREDENTIAL

PASSWORD = "correct horse battery"
READER, CONTROL, OPERATIONS = "/toban_proto.v1.JobReader/", "/toban_proto.v1.JobControl/", "/toban_proto.v1.Operations/"


@dataclass
class World:
    """Jobs backup (team ops) and mail (team web), each with a schedule of its name, and accounts."""

    pool: Pool
    clock: FakeClock
    accounts: Accounts
    sign_in: SignIn
    check: PeopleCheck

    async def user(self, name: str, *rules: tuple[str, str, Selector]) -> str:
        """A session of a new account with these rules."""
        await self.accounts.add_user(name, display_name="", password=PASSWORD, actor="certificate admin-cli")
        for effect, role, selector in rules:
            rule = NewRule(user=name, effect=Effect(effect), role=Role(role), selector=selector)
            await self.accounts.add_rule(rule, actor="certificate admin-cli")
        return (await self.sign_in.with_password(name, PASSWORD, address="192.0.2.1")).secret

    async def token(self, user: str, role: str, selector: Selector | None = None) -> tuple[str, int]:
        new = NewToken(user=user, name="t", role=Role(role), selector=selector or Selector(), days=1)
        secret, number, _ = await self.sign_in.create_token(new, actor="user root")
        return secret, number

    async def ask(self, method: str, request: Any = None, *, secret: str = "", service: str = "admin-web") -> Any:
        """The admission, or the code of the refusal."""
        given = {CREDENTIAL: secret} if secret else {}
        try:
            about = request if callable(request) else lambda: request
            return await self.check.admit(method, caller=Caller("192.0.2.7", service), about=about, given=given)
        except TobanError as error:
            return error.code

    async def runs_of(self, name: str, **fields: Any) -> list[int]:
        """Runs of a job that exist."""
        service = StartRuns(
            pool=self.pool, definitions=DefinitionCache(), payloads=PayloadValidator(), fast_path=CurrentFastPath()
        )
        return [run.run_id for run in await service.start([RunRequest(job=name, **fields)], "user root")]

    async def refusal(self, method: str, request: Any, secret: str) -> str:
        """The message about a call of JobControl; empty when it is allowed."""
        try:
            await self.check.admit(
                CONTROL + method,
                caller=Caller("192.0.2.7", "admin-web"),
                about=lambda: request,
                given={CREDENTIAL: secret},
            )
        except TobanError as error:
            assert error.code is ErrorCode.PERMISSION_DENIED
            return error.message
        return ""

    @staticmethod
    def job(name: str, team: str) -> str:
        spec = {"steps": [{"id": "run", "argv": ["/bin/true"]}]}
        metadata = {"name": name, "labels": {"team": team}}
        return json.dumps({"apiVersion": "toban/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    @staticmethod
    def schedule(name: str, of: str) -> str:
        spec = {"job": of, "interval_seconds": 3600}
        return json.dumps({"apiVersion": "toban/v1", "kind": "Schedule", "metadata": {"name": name}, "spec": spec})

    @staticmethod
    def start(name: str, **given: Any) -> pb.StartRunsRequest:
        return pb.StartRunsRequest(runs=[pb.StartRunRequest(job=name, **given)])

    @staticmethod
    def chain(job_name: str, **ends: Any) -> pb.ApplyRequest:
        spec = {"job": job_name, "on_run_end": ends}
        text = json.dumps(
            {"apiVersion": "toban/v1", "kind": "EventTrigger", "metadata": {"name": "after"}, "spec": spec}
        )
        return pb.ApplyRequest(manifests=[pb.Manifest(json=text)])

    @staticmethod
    def defined(name: str, labels: dict[str, str], **spec: Any) -> pb.ApplyRequest:
        body = {"steps": [{"id": "run", "argv": ["/bin/true"]}], **spec}
        whole = {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}, "spec": body}
        return pb.ApplyRequest(manifests=[pb.Manifest(json=json.dumps(whole))])


@pytest.fixture
async def world(pool: Pool) -> AsyncIterator[World]:
    passwords, ids, clock = Passwords(memory_kib=8, time_cost=1), IdSource(), FakeClock()
    texts = [
        World.job("backup", "ops"),
        World.job("mail", "web"),
        World.schedule("backup", "backup"),
        World.schedule("mail", "mail"),
    ]
    await Apply(pool=pool).apply([ManifestText(json=text) for text in texts], actor="user root")
    sign_in = SignIn(pool=pool, passwords=passwords, ids=ids)
    accounts = Accounts(pool=pool, passwords=passwords, ids=ids)
    check = PeopleCheck(pool=pool, credentials=Credentials(sign_in=sign_in, clock=clock))
    yield World(pool, clock, accounts, sign_in, check)
    passwords.close()
