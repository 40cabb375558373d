"""`toban group`: what is listed, shown and sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_proto.v1 import coordinator_pb2 as pb

DEFAULT = pb.ExecutorGroup(name="default", claims=["*"], executors=2, instances=2, version=1)
PCI = pb.ExecutorGroup(name="pci", labels={"pool": "pci"}, claims=["zone"], executors=1, version=4, updated_by="ada")
PCI.job_labels["team"] = "pay"


@pytest.fixture
def groups(cluster: Any) -> Any:
    """A cluster with two groups that takes every change."""
    answers = cluster.operations.answers
    answers["ListExecutorGroups"] = pb.ListExecutorGroupsResponse(groups=[DEFAULT, PCI])
    answers["SetExecutorGroup"] = lambda request: pb.ExecutorGroup(
        name=request.name,
        labels=request.labels,
        claims=request.claims,
        job_labels=request.job_labels,
        version=request.version + 1,
    )
    answers["RemoveExecutorGroup"] = pb.RemoveExecutorGroupResponse()
    return cluster.operations


def test_groups_are_listed_and_shown(groups: Any, toban: Any) -> None:
    code, out, _ = toban("group", "list", "-o", "wide")
    assert code == 0
    assert [line.split() for line in out.splitlines()][1:] == [
        ["default", "-", "any", "label", "-", "2", "2", "-", "-", "1"],
        ["pci", "pool=pci", "zone", "team=pay", "1", "0", "-", "ada", "4"],
    ]
    assert toban("group", "list", "-o", "name")[1].split() == ["default", "pci"]
    [shown] = json.loads(toban("group", "get", "pci", "-o", "json")[1])
    assert (shown["name"], shown["labels"]) == ("pci", {"pool": "pci"})


def test_a_group_is_made(groups: Any, toban: Any) -> None:
    code, out, _ = toban(
        "group",
        "add",
        "web",
        "--label",
        "pool=web",
        "--label",
        "a=b=c",
        "--claim",
        "zone",
        "--job-label",
        "team=web",
        "--reason",
        "r",
    )
    request = groups.requests[-1]
    assert code == 0 and out.startswith("executor group web (version 1): labels a=b=c,pool=web; may claim zone\n")
    assert "it runs only jobs with the labels team=web\n" in out
    assert "spiffe://TRUST-DOMAIN/executor/web" in out and dict(request.job_labels) == {"team": "web"}
    assert (request.create, dict(request.labels), list(request.claims), request.reason) == (
        True, {"pool": "web", "a": "b=c"}, ["zone"], "r",
    )  # fmt: skip


def test_a_change_keeps_what_it_does_not_name(groups: Any, toban: Any) -> None:
    words = ("--label", "site=x", "--claim", "rack", "--drop-claim", "zone", "--instance", "i1")
    assert toban("group", "set", "pci", *words)[0] == 0
    request = groups.requests[-1]
    assert (dict(request.labels), list(request.claims)) == ({"pool": "pci", "site": "x"}, ["rack"])
    assert (request.version, request.create, list(request.instances)) == (4, False, ["i1"])
    assert toban("group", "set", "pci", "--drop-label", "pool")[0] == 0
    assert dict(groups.requests[-1].labels) == {} and dict(groups.requests[-1].job_labels) == {"team": "pay"}
    assert toban("group", "set", "pci", "--job-label", "card=yes", "--drop-job-label", "team")[0] == 0
    assert dict(groups.requests[-1].job_labels) == {"card": "yes"} and not groups.requests[-1].no_job_labels
    assert toban("group", "set", "pci", "--drop-job-label", "team")[0] == 0
    assert dict(groups.requests[-1].job_labels) == {} and groups.requests[-1].no_job_labels


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "A b"), "is not a name of an executor group"),
        (("add", "web", "--label", "pool"), "--label 'pool' is not NAME=VALUE"),
        (("add", "web", "--job-label", "team"), "--job-label 'team' is not NAME=VALUE"),
        (("set", "pci", "--drop-job-label", "pool"), "group 'pci' has no job label 'pool'"),
        (("set", "pcj"), "did you mean 'pci'?"),
        (("set", "pci", "--drop-label", "zone"), "group 'pci' has no label 'zone'"),
        (("set", "pci", "--drop-claim", "pool"), "group 'pci' has no claim 'pool'"),
        (("get", "other-name"), "toban group add other-name"),
    ],
)
def test_bad_input_is_explained(groups: Any, toban: Any, words: tuple[str, ...], says: str) -> None:
    code, out, err = toban("group", *words)
    assert code != 0 and says in " ".join((out + err).split())


def test_a_group_is_deleted(groups: Any, toban: Any) -> None:
    code, out, _ = toban("group", "delete", "pci", "--reason", "moved")
    assert (code, out) == (0, "executor group pci deleted\n")
    assert (groups.requests[-1].name, groups.requests[-1].reason) == ("pci", "moved")
