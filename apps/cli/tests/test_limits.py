"""`toban limit`: what is listed, shown and sent; and the scope of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb


def limit(name: str = "job:etl", **fields: Any) -> pb.Limit:
    known = {"name": name, "limit": 3, "source": "definition", "held": 3, "waiting": 12, **fields}
    return pb.Limit(**{"effective": known["limit"], **known})


@pytest.fixture
def limits(cluster: Any) -> Any:
    """A cluster with two limits that takes every change."""
    stopped = limit("pool:licences", limit=-1, source="operator", held=0, waiting=1, updated_by="ada", reason="down")
    answers = cluster.operations.answers
    answers["ListLimits"] = pb.ListLimitsResponse(limits=[limit(), stopped])
    answers["GetLimit"] = lambda request: pb.GetLimitResponse(
        limit=limit(request.name),
        holders=[
            pb.LimitRun(
                run_id=7, job="etl", state="RUNNING", weight=2, scope="account", scope_id="17", executor="host-a"
            )
        ],
        waiting=[pb.LimitRun(run_id=9, job="etl", state="DEFERRED", weight=1, scope="system")],
    )
    answers["SetLimit"] = lambda request: pb.SetLimitResponse(
        limit=limit(request.name, limit=0 if request.reset else request.limit)
    )
    answers["SetBreaker"] = lambda request: pb.SetBreakerResponse(
        limit=limit(request.name, effective=-1 if request.open else 3)
    )
    answers["SignalLimit"] = lambda request: pb.SignalLimitResponse(limit=limit(request.name, effective=2))
    return cluster.operations


def test_limits_are_listed(limits: Any, toban: Any) -> None:
    code, out, _ = toban("limit", "list", "-o", "wide")
    rows = [line.split() for line in out.splitlines()]
    assert code == 0 and rows[1][:4] == ["job:etl", "3", "3", "12"]
    assert "open: nothing starts" in out and "ada" in out and "down" in out
    assert toban("limit", "list", "-o", "name")[1].split() == ["job:etl", "pool:licences"]


def test_a_limit_shows_who_holds_it_and_who_waits(limits: Any, toban: Any) -> None:
    code, out, _ = toban("limit", "get", "job:etl")
    assert code == 0 and limits.requests[-1].name == "job:etl"
    holder = next(line.split() for line in out.splitlines() if line.startswith("7 "))
    assert holder[:5] == ["7", "etl", "RUNNING", "2", "account:17"] and holder[-1] == "host-a"
    assert any(line.startswith("9 ") for line in out.splitlines())


def test_a_limit_is_set_opened_and_reset(limits: Any, toban: Any) -> None:
    code, out, _ = toban("limit", "set", "job:etl", "5", "--reason", "why")
    assert (code, out) == (0, "job:etl: 5; 3 taken, 12 waiting\n")
    sent = limits.requests[-1]
    assert (sent.name, sent.limit, sent.reason, sent.reset) == ("job:etl", 5, "why", False)
    assert "nothing starts" in toban("limit", "open", "job:etl", "--reason", "down")[1] and limits.requests[-1].open
    assert "job:etl: 3;" in toban("limit", "close", "job:etl")[1] and not limits.requests[-1].open
    assert "no limit" in toban("limit", "reset", "job:etl")[1] and limits.requests[-1].reset


def test_a_wrong_limit_is_refused_here(limits: Any, toban: Any) -> None:
    code, _, err = toban("limit", "set", "job:etl", "many")
    assert code == 64 and "many" in err and limits.requests == []


def test_a_run_is_started_for_a_tenant(cluster: Any, toban: Any) -> None:
    toban("run", "start", "hello", "--scope", "account:17")
    [request] = cluster.control.requests[-1].runs
    assert (request.scope, request.scope_id) == ("account", "17")


def test_a_signal_says_what_is_left_of_the_limit(limits: Any, toban: Any) -> None:
    code, out, _ = toban("limit", "signal", "pool:db", "soft", "--ttl", "120")
    assert (code, out) == (0, "pool:db: 3 (now 2); 3 taken, 12 waiting\n")
    sent = limits.requests[-1]
    assert (sent.name, sent.level, sent.ttl_seconds) == ("pool:db", "soft", 120)


def test_a_limit_shows_its_breaker_and_its_health(limits: Any, toban: Any) -> None:
    broken = limit(
        effective=-1,
        breaker="half_open",
        breaker_by="leader",
        breaker_reason="5 of 8 runs failed",
        signal="hard",
        signal_by="db",
    )
    limits.answers["GetLimit"] = pb.GetLimitResponse(limit=broken)
    _, out, _ = toban("limit", "get", "job:etl")
    assert "half open since" in out and "by leader: 5 of 8 runs failed" in out and "hard until" in out


@pytest.fixture
def explained(cluster: Any) -> Any:
    """A run that waits for a limit, as the coordinator explains it."""
    found = pb.RunExplanation(
        run_id=9,
        job="etl",
        state="DEFERRED",
        reasons=["limit job:etl is reached (1 of 1 are taken)", "no executor is registered; start one"],
        checks=[
            pb.RunCheck(name="due", message="it was due at noon"),
            pb.RunCheck(name="limit", message="limit job:etl is reached (1 of 1 are taken)", blocks=True),
        ],
        limits=[
            pb.RunLimit(
                name="job:etl",
                effective=1,
                held=1,
                weight=1,
                blocks=True,
                holders=[pb.LimitRun(run_id=7, job="etl", state="RUNNING", weight=1, scope="account", scope_id="17")],
            )
        ],
        executors=[
            pb.RunCandidate(
                worker_id=3, executor="host-a", running=4, slots=4, message="all its slots are busy (4 of 4)"
            )
        ],
        turn=pb.RunTurn(
            more_urgent=1000,
            earlier=2,
            scopes=[
                pb.RunScope(scope="account", scope_id="17", waiting=3, weight=2),
                pb.RunScope(scope="system", waiting=1),
            ],
        ),
    )
    cluster.reader.answers["ExplainRun"] = found
    return found


def test_the_answer_comes_first_and_then_its_parts(explained: Any, toban: Any) -> None:
    code, out, _ = toban("run", "why", "9")
    lines = out.splitlines()
    assert code == 0 and lines[0].split() == ["Run:", "9", "of", "etl"]
    assert [line.split(maxsplit=1) for line in lines[2:4]] == [
        ["Why:", explained.reasons[0]],
        ["Also:", explained.reasons[1]],
    ]
    rows = [line.split() for line in lines]
    assert ["due", "ok", "it", "was", "due", "at", "noon"] in rows and ["limit", "waits"] in [row[:2] for row in rows]
    assert "Holding job:etl (1 of 1 taken; this run takes 1)" in lines
    assert ["7", "etl", "RUNNING", "1", "account:17"] in [row[:5] for row in rows]
    assert ["3", "host-a", "4/4", "no", "all"] in [row[:5] for row in rows]
    assert "Queue: 1000 or more more urgent, 2 earlier of its own scope" in lines and ["account:17", "3", "2"] in rows


def test_the_explanation_of_a_run_that_was_sent_has_no_queue(explained: Any, toban: Any) -> None:
    for name in ("turn", "checks", "limits", "executors"):
        explained.ClearField(name)
    code, out, _ = toban("run", "why", "9")
    assert code == 0 and "Queue" not in out and "Before it starts" not in out and "No executor is registered." in out
    explained.at_worker = True
    assert "Executors now" not in toban("run", "why", "9")[1]


def test_programs_get_the_whole_explanation(explained: Any, toban: Any) -> None:
    code, out, _ = toban("run", "why", "9", "-o", "json")
    found = json.loads(out)
    assert code == 0 and found["run_id"] == 9 and found["limits"][0]["holders"][0]["run_id"] == 7
    assert toban("run", "why", "9", "-o", "name")[1] == "9\n"
