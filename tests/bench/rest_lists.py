"""Pages of runs by each filter of run_lists.py, alone and with a job, over REST and over gRPC: a whole stack, one client, one connection.

Usage: scripts/bench rest_lists, or python tests/bench/rest_lists.py [finished runs] [days] [rounds]; prints a JSON line for each way, with p50 and
p95 in milliseconds for each filter. Goal: each p95 below 50 ms with 1 M finished runs.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlencode

from run_lists import fill, queries

from toban_proto.v1 import common_pb2
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1 import coordinator_pb2_grpc as rpc
from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, running_stack
from toban_testing.starter import temporary_folder

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
DAYS = int(sys.argv[2]) if len(sys.argv) > 2 else 30
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 30
GOAL_MS = 50.0

Ask = Callable[[dict[str, Any], str], int]
"""A page by a filter of `queries` and a cursor: how many runs it has."""


def main() -> None:
    """Fill a stack's database and ask for pages in both ways."""
    with site_stack() as (stack, admin):
        began = time.perf_counter()
        fill(stack.endpoints().database_url, RUNS, DAYS)
        filled = round(time.perf_counter() - began)
        for way, ask in (("rest", over_rest(stack, admin)), ("grpc", over_grpc(admin))):
            figures = measure(ask)
            line = {"bench": "rest_lists", "way": way, "runs": RUNS, "days": DAYS, "fill_s": filled, "goal_ms": GOAL_MS}
            worst = max(p95 for _, p95 in figures.values())
            load = round(os.getloadavg()[0], 1)
            print(json.dumps({**line, "load": load, "worst_p95_ms": worst, "p50_p95_ms": figures}), flush=True)


@contextmanager
def site_stack(**environment: str) -> Iterator[tuple[Stack, AdminClient]]:
    """A stack with a site that refuses no request for its rate, and a client of it."""
    variables = {"SCHEDULER_API_RATE": "0", **environment}
    with ExitStack() as context:
        home = context.enter_context(temporary_folder("toban-bench-"))
        stack = context.enter_context(
            running_stack(home, coordinators=1, executors=1, admin_webs=1, environment=variables)
        )
        yield stack, context.enter_context(admin_of(stack))


def token(admin: AdminClient, *, role: str = "viewer") -> str:
    """A token of a new account."""

    def accounts(method: str, request: Any) -> Any:
        return admin.call(rpc.AccountsStub, method, request)

    accounts("AddUser", pb.AddUserRequest(name="bench"))
    accounts("AddRule", pb.AddRuleRequest(rule=pb.AccessRule(user="bench", effect="allow", role=role)))
    made = accounts("CreateToken", pb.CreateTokenRequest(user="bench", name="t", role=role, days=1))
    return str(made.secret)


def over_rest(stack: Stack, admin: AdminClient) -> Ask:
    """GET /api/v1/runs."""
    host, _, port = stack.sites[0].rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    headers = {"Authorization": f"Bearer {token(admin)}"}

    def ask(wanted: dict[str, Any], cursor: str) -> int:
        times = {"active_from": "since", "active_until": "until"}
        fields = {times.get(name, name): value for name, value in wanted.items() if name not in ("states", "labels")}
        query = [(name, value.isoformat() if name in times.values() else value) for name, value in fields.items()]
        query += [("state", state) for state in wanted.get("states", ())]
        query += [("label", f"{key}={value}") for key, value in wanted.get("labels", {}).items()]
        connection.request("GET", f"/api/v1/runs?{urlencode([*query, ('cursor', cursor)])}", headers=headers)
        response = connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"GET /runs answered {response.status}: {body['detail']}")
        return len(body["runs"])

    return ask


def over_grpc(admin: AdminClient) -> Ask:
    """JobReader.ListRuns."""

    def ask(wanted: dict[str, Any], cursor: str) -> int:
        request = pb.ListRunsRequest(page=common_pb2.Page(limit=50, cursor=cursor), **wanted)
        return len(admin.call(rpc.JobReaderStub, "ListRuns", request).runs)

    return ask


def measure(ask: Ask) -> dict[str, list[float]]:
    """Filter → p50 and p95, milliseconds: the first page and one in the middle, with other values in each round."""
    times: dict[str, list[float]] = {}
    for round_number in range(ROUNDS):
        for name, wanted in queries(round_number, DAYS).items():
            for cursor in ("", str(RUNS // 2)):
                began = time.perf_counter()
                ask(wanted, cursor)
                times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    return {
        name: [round(sorted(each)[len(each) * share // 100], 1) for share in (50, 95)] for name, each in times.items()
    }


if __name__ == "__main__":
    main()
