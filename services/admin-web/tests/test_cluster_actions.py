"""Drain, undrain, detach and demote: the epoch that the operator saw goes along, and a page of another leader's time has no form."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import EPOCH

VERBS = [
    ("drain", pb.DrainExecutorRequest, "drained"),
    ("undrain", pb.UndrainExecutorRequest, "undrained"),
    ("detach", pb.DetachExecutorRequest, "detached"),
]


def sent(web: Any, kind: type) -> list[Any]:
    """The requests of one kind."""
    return [one for one in web.cluster.reader.requests if isinstance(one, kind)]


@pytest.mark.seed(13)
@pytest.mark.parametrize(("verb", "kind", "done"), VERBS)
def test_an_operation_names_executor_epoch_and_reason(web: Any, verb: str, kind: type, done: str) -> None:
    response = web.post(f"/executors/3/{verb}?epoch={EPOCH}", reason="new disk")
    assert response.location == f"/executors?done={done}&of=3"
    assert [(one.worker_id, one.epoch, one.reason) for one in sent(web, kind)] == [(3, EPOCH, "new disk")]
    assert 'role="status">The executor' in web.page(response.location)


def test_a_detach_lets_runs_finish_unless_they_are_to_stop(web: Any) -> None:
    web.post("/executors/3/detach", reason="x")
    assert [one.mode for one in sent(web, pb.DetachExecutorRequest)] == ["let_finish"]
    web.post("/executors/3/detach", reason="x", mode="stop")
    assert [one.mode for one in sent(web, pb.DetachExecutorRequest)] == ["stop"]


@pytest.mark.seed(13)
def test_the_leader_that_was_seen_is_demoted(web: Any) -> None:
    response = web.post(f"/cluster/demote?epoch={EPOCH}", reason="patching")
    assert response.location == "/cluster?done=demoted"
    assert [(one.epoch, one.reason) for one in sent(web, pb.DemoteLeaderRequest)] == [(EPOCH, "patching")]


@pytest.mark.parametrize("path", ["/cluster/demote", "/executors/3/drain", "/executors/3/detach"])
def test_a_page_of_another_leaders_time_has_no_form(web: Any, path: str) -> None:
    text = web.page(f"{path}?epoch={EPOCH - 1}")
    assert "Another leader leads" in text and "127.0.0.1:5000 (worker 1" in text and "<form class" not in text


@pytest.mark.parametrize(
    ("path", "method"), [("/cluster/demote", "DemoteLeader"), ("/executors/3/drain", "DrainExecutor")]
)
def test_a_leader_that_came_while_the_form_was_open_refuses(web: Any, path: str, method: str) -> None:
    error = TobanError(ErrorCode.CONFLICT, f"epoch {EPOCH + 1} leads, not {EPOCH}", detail={"epoch": EPOCH + 1})
    web.cluster.reader.responses[method] = error
    response = web.post(path, reason="x")
    assert response.status_code == 409 and f"epoch {EPOCH + 1} leads" in response.get_data(as_text=True)


@pytest.mark.parametrize("path", ["/cluster/demote", "/executors/3/undrain"])
def test_a_form_without_an_epoch_is_not_sent(web: Any, path: str) -> None:
    response = web.post(path, reason="x", epoch="")
    assert response.status_code == 400 and "names no leader" in response.get_data(as_text=True)
    assert web.post(path, reason="").status_code == 400
    assert sent(web, pb.DemoteLeaderRequest) == sent(web, pb.UndrainExecutorRequest) == []


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        ({}, ["drain", "detach"]),
        ({"state": "draining", "drained": True}, ["undrain", "detach"]),
        ({"state": "detached"}, ["drain", "detach"]),
        ({"state": "off"}, []),
        ({"state": "off", "drained": True}, ["undrain"]),
    ],
)
def test_what_is_offered_for_an_executor(web: Any, given: dict[str, Any], offered: list[str]) -> None:
    one = web.executor(**given)
    web.cluster.reader.responses |= {
        "ListExecutors": pb.ListExecutorsResponse(executors=[one]),
        "GetCluster": web.whole(executors=[one]),
    }
    for path in ("/executors", "/cluster"):
        assert re.findall(rf'href="/executors/3/([a-z]+)\?epoch={EPOCH}"', web.page(path)) == offered


def test_without_a_leader_none_is_demoted(web: Any) -> None:
    assert f"/cluster/demote?epoch={EPOCH}" in web.page("/cluster")
    web.cluster.reader.responses["GetCluster"] = web.whole(leader_address="")
    assert "/cluster/demote" not in web.page("/cluster")


def test_a_demotion_names_who_can_take_over(web: Any) -> None:
    def shown(*others: pb.Member) -> list[str]:
        leader = pb.Member(worker_id=1, address="127.0.0.1:5000", role="leader", status="ok")
        web.cluster.reader.responses["GetCluster"] = web.whole(coordinators=[leader, *others])
        text = web.page(f"/cluster/demote?epoch={EPOCH}")
        assert ("this one will lead again" in text) is not any(one.status == "ok" for one in others)
        return re.findall(r'<li><span class="code">(\S+)</span>', text)

    standby = pb.Member(worker_id=2, address="127.0.0.1:5001", role="standby", status="ok")
    sub = pb.Member(worker_id=3, address="127.0.0.1:5002", role="subleader", status="ok")
    lost = pb.Member(worker_id=4, address="127.0.0.1:5003", role="standby", status="lost")
    assert shown(standby, sub, lost) == ["127.0.0.1:5002", "127.0.0.1:5001"]
    assert shown(lost) == []


def test_the_roles_are_explained(web: Any) -> None:
    text = web.page("/cluster")
    assert [role for role in ("leader", "sub-leader", "standby") if f"<dt>{role}</dt>" in text] == [
        "leader",
        "sub-leader",
        "standby",
    ]


def test_an_executor_that_is_unknown_is_not_found(web: Any) -> None:
    assert web.get("/executors/77/drain").status_code == 404


def test_an_editor_operates_nothing(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = web.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="ed", role="editor"))
    assert "/executors/3/" not in web.page("/executors") and "/cluster/demote" not in web.page("/cluster")
    for path in ("/executors/3/drain", "/executors/3/undrain", "/executors/3/detach", "/cluster/demote"):
        assert web.get(path).status_code == 403
