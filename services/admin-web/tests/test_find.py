"""The names that the palette finds, and for whom."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb


def found(web: Any, text: str) -> dict[str, list[tuple[str, str]]]:
    """(name, path) by kind."""
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for one in web.get(f"/find?{urlencode({'q': text})}").get_json()["found"]:
        by_kind.setdefault(one["kind"], []).append((one["name"], one["path"]))
    return by_kind


@pytest.mark.parametrize(
    ("text", "kind", "name", "path"),
    [
        ("HELL", "jobs", "hello", "/jobs/hello"),
        ("often", "schedules", "hello-often", "/schedules/hello-often"),
        ("paid", "triggers", "invoice-when-paid", "/triggers/invoice-when-paid"),
        ("executor-1", "executors", "executor-1", "/executors#executor-3"),
        ("licen", "limits", "pool:licences", "/limits/one?name=pool:licences"),
        ("pag", "webhooks", "pager", "/webhooks/pager"),
        ("rep", "hooks", "repo", "/incoming/repo"),
        ("ADA", "users", "ada", "/users/ada"),
    ],
)
def test_each_kind_is_found_by_a_part_of_its_name(web: Any, text: str, kind: str, name: str, path: str) -> None:
    assert (name, path) in found(web, text)[kind]
    assert found(web, "no such name") == found(web, " ") == {}


def test_a_viewer_finds_no_users_and_secrets(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"ListSecrets": pb.ListSecretsResponse(secrets=[pb.Secret(name="ada-key")])}
    web.cluster.reader.responses |= named
    assert found(web, "ada")["secrets"] == [("ada-key", "/secrets#ada-key")] and "users" in found(web, "ada")
    people = web.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="vic", role="viewer"))
    web.cluster.reader.requests.clear()
    assert found(web, "ada") == {}
    assert not [one for one in web.cluster.reader.requests if isinstance(one, pb.ListSecretsRequest)]


@pytest.mark.parametrize("code", [ErrorCode.PERMISSION_DENIED, ErrorCode.UNIMPLEMENTED])
def test_what_is_refused_leaves_the_others(web: Any, code: ErrorCode) -> None:
    web.refuse("ListLimits", code, "not for you")
    assert list(found(web, "hello")) == ["jobs", "schedules"]


def test_an_outage_is_not_an_answer(web: Any) -> None:
    web.refuse("ListSchedules", ErrorCode.UNAVAILABLE, "no coordinator answers")
    assert web.get("/find?q=hello").status_code == 503


def test_the_nearest_names_come_first(web: Any) -> None:
    """As coordinators list them, by name, the best one is the last."""
    names = sorted(["load", *(f"a-load-{number:02}" for number in range(30)), "far-from-load"])
    web.cluster.reader.responses |= {
        "ListJobs": lambda asked: pb.ListJobsResponse(jobs=[web.job(name=one) for one in names[: asked.page.limit]]),
        "ListSchedules": lambda asked: pb.ListSchedulesResponse(
            schedules=[web.schedule(name=one) for one in names[: asked.page.limit]]
        ),
    }
    nearest = ["load", *(f"a-load-{number:02}" for number in range(5))]
    for kind in ("jobs", "schedules"):
        assert [name for name, _ in found(web, "load")[kind]] == nearest


def test_jobs_and_schedules_have_what_can_be_done_with_them(web: Any) -> None:
    web.cluster.reader.responses["ListJobs"] = pb.ListJobsResponse(
        jobs=[web.job(name="load"), web.job(name="load-2", disabled_at=web.stamp())]
    )
    acts = {one["name"]: one["acts"] for one in web.get("/find?q=load").get_json()["found"]}
    assert (acts["load"], acts["load-2"]) == (["run", "disable"], ["run", "enable"])
    [schedule] = [one for one in web.get("/find?q=hello-often").get_json()["found"] if one["kind"] == "schedules"]
    assert schedule["acts"] == ["pause"]
