"""The rules of the protos against the reviewed file rights.txt, and every method by every caller."""

import re
from importlib import import_module
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.access import MINIMUM
from toban_domain.errors import ErrorCode, TobanError
from toban_transport.authz import (
    METHOD_RULES,
    SERVICES,
    SHARED_BY,
    authorise,
    check_rules,
    executor_name,
    group_of,
    name_of,
    services_of,
    worker_type_of,
)
from toban_transport.deadline import (
    MAX_SECONDS,
    MAX_STREAM_SECONDS,
    MAX_UNARY_SECONDS,
    admitted_seconds,
)
from toban_transport.rules import PACKAGE, RULES, MethodRule

DOMAIN = "toban.internal"
# Written by hand a second time: the rules must agree with what was reviewed, not with themselves.
LINES = Path(__file__).with_name("rights.txt").read_text(encoding="utf-8").splitlines()
REVIEWED = [re.split(" {2,}", line) for line in LINES if not line.startswith("#")]
CALLERS = {method: set(callers.split(",")) for method, callers, *_ in REVIEWED}


def known_methods() -> set[str]:
    """Full names of the methods of all protos and of health checking."""
    folder = Path(import_module(PACKAGE).__path__[0])
    modules = [f"{PACKAGE}.{file.stem}" for file in folder.glob("*_pb2.py")] + ["grpc_health.v1.health_pb2"]
    services = [one for name in modules for one in import_module(name).DESCRIPTOR.services_by_name.values()]
    return {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


KNOWN_METHODS = known_methods()


def short(method: str) -> str:
    return method.rpartition(".")[2].replace("/", ".")


def callers_of(method: str) -> set[str]:
    return CALLERS[short(method)]


def cells_of(method: str) -> list[str]:
    """The cells that a method has in rights.txt by its rule."""
    rule = RULES.get(method, MethodRule())
    right = f"{rule.person.action}: {rule.person.about}" if rule.person else rule.authority or "--"
    role = MINIMUM[rule.person.action] if rule.person else "--"
    return [short(method), ",".join(sorted(METHOD_RULES[method])), str(right), str(role)]


def test_every_method_has_a_rule_and_every_rule_a_method() -> None:
    assert set(METHOD_RULES) == KNOWN_METHODS
    check_rules(KNOWN_METHODS)


def test_the_rules_are_the_reviewed_ones() -> None:
    assert sorted(map(cells_of, METHOD_RULES)) == sorted(REVIEWED)


def test_every_method_by_every_caller(subtests: pytest.Subtests) -> None:
    for method, caller in product(sorted(KNOWN_METHODS), sorted(SERVICES)):
        with subtests.test(f"{method} by {caller}"):
            ids = [f"spiffe://{DOMAIN}/{caller}"]
            if caller in callers_of(method):
                assert authorise(method, ids, DOMAIN) == caller
            else:
                with pytest.raises(TobanError) as caught:
                    authorise(method, ids, DOMAIN)
                assert caught.value.code is ErrorCode.PERMISSION_DENIED


def test_a_refusal_names_who_may_and_where_its_certificate_comes_from() -> None:
    with pytest.raises(TobanError) as caught:
        authorise("/toban_proto.v1.JobReader/GetRun", [f"spiffe://{DOMAIN}/executor"], DOMAIN)
    assert "admin-cli or admin-web" in caught.value.message and f"spiffe://{DOMAIN}/admin-cli" in caught.value.message
    assert "TOBAN_TLS_DIR" in caught.value.message
    assert "default name: scheduler-grpc-tls-admin-cli" in caught.value.message


def test_a_refusal_never_suggests_the_certificate_of_a_service(subtests: pytest.Subtests) -> None:
    for method in sorted(method for method in KNOWN_METHODS if "admin-cli" not in callers_of(method)):
        with subtests.test(method):
            with pytest.raises(TobanError) as caught:
                authorise(method, [f"spiffe://{DOMAIN}/admin-cli"], DOMAIN)
            assert f"use the certificate of {' or '.join(sorted(callers_of(method)))} (" in caught.value.message
            assert "Secret" not in caught.value.message and "TOBAN_TLS_DIR" not in caught.value.message


def test_an_unknown_method_is_denied() -> None:
    with pytest.raises(TobanError):
        authorise("/toban_proto.v1.WorkerService/Launch", [f"spiffe://{DOMAIN}/coordinator"], DOMAIN)


@pytest.mark.parametrize(
    "ids",
    [
        [],
        ["spiffe://toban.internal/coordinator"] * 2,
        ["spiffe://toban.internal/"],
        ["spiffe://toban.internal/Coordinator"],
        ["spiffe://toban.internal/coordinator/"],
        ["spiffe://toban.internal/coordinator/1"],
        ["spiffe://toban.internal/../coordinator"],
        ["spiffe://toban.internal:443/coordinator"],
        ["spiffe://user@toban.internal/coordinator"],
        ["spiffe://toban.internal.evil.example/coordinator"],
        ["spiffe://eviltoban.internal/coordinator"],
        ["SPIFFE://toban.internal/coordinator"],
        ["https://toban.internal/coordinator"],
        ["coordinator"],
        ["coordinator.toban.internal"],
        ["spiffe://toban.internal/coordinator\n"],
        ["spiffe://toban.internal/coordinator?x"],
        ["spiffe://toban.internal/coordinator\x00"],
    ],
)
def test_ids_that_name_no_caller(ids: list[str]) -> None:
    with pytest.raises(TobanError) as caught:
        services_of(ids, DOMAIN)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


@given(st.text())
def test_only_our_six_ids_name_a_service(text: str) -> None:
    spiffe_id = f"spiffe://{DOMAIN}/{text}"
    if text in SERVICES:
        assert services_of([spiffe_id], DOMAIN) == {text}
    else:
        with pytest.raises(TobanError):
            services_of([spiffe_id], DOMAIN)


WORKER = [f"spiffe://{DOMAIN}/external-worker/transcode.4k_a-1"]


def test_a_worker_of_one_type_may_call_what_external_workers_may(subtests: pytest.Subtests) -> None:
    for method in sorted(KNOWN_METHODS):
        with subtests.test(method):
            if "external-worker" in callers_of(method):
                assert authorise(method, WORKER, DOMAIN) == "external-worker/transcode.4k_a-1"
            else:
                with pytest.raises(TobanError, match="may not call"):
                    authorise(method, WORKER, DOMAIN)


def test_the_type_of_a_worker() -> None:
    assert worker_type_of("external-worker/transcode.4k_a-1") == "transcode.4k_a-1"
    assert worker_type_of("external-worker") == worker_type_of("executor/transcode") == worker_type_of("shared/a") == ""
    assert services_of(WORKER, DOMAIN) == {"external-worker"}


@pytest.mark.parametrize("name", ["", "A", "a/b", "-a", "a-", "a b", "*", "../coordinator", "a\n", "a" * 129])
def test_a_type_that_no_step_can_have_names_no_caller(name: str) -> None:
    """In place of a certificate that is good for every type."""
    with pytest.raises(TobanError) as caught:
        services_of([f"spiffe://{DOMAIN}/external-worker/{name}"], DOMAIN)
    assert caught.value.code is ErrorCode.PERMISSION_DENIED


SHARED = [f"spiffe://{DOMAIN}/shared/one-for-all.2"]


def test_a_shared_certificate_is_refused_unless_it_is_wanted(subtests: pytest.Subtests) -> None:
    for method in sorted(KNOWN_METHODS):
        with subtests.test(method):
            with pytest.raises(TobanError, match="SCHEDULER_TLS_SHARED_IDENTITY=1") as caught:
                authorise(method, SHARED, DOMAIN)
            assert caught.value.code is ErrorCode.PERMISSION_DENIED


def test_a_shared_certificate_may_do_what_services_may_and_nothing_of_people(subtests: pytest.Subtests) -> None:
    for method in sorted(KNOWN_METHODS):
        with subtests.test(method):
            if callers_of(method) & {"coordinator", "executor", "log-archiver", "admin-web"}:
                assert authorise(method, SHARED, DOMAIN, shared=True) == "shared/one-for-all.2"
            else:
                with pytest.raises(TobanError, match="may not call"):
                    authorise(method, SHARED, DOMAIN, shared=True)


def test_no_service_shares_what_people_and_external_workers_have() -> None:
    assert {"coordinator", "executor", "log-archiver", "admin-web"} == SHARED_BY


@pytest.mark.parametrize(
    "ids",
    [
        [f"spiffe://{DOMAIN}/shared"],
        [f"spiffe://{DOMAIN}/shared/"],
        [f"spiffe://{DOMAIN}/shared/a/b"],
        [f"spiffe://{DOMAIN}/shared/a b"],
        [f"spiffe://{DOMAIN}/shared/a\n"],
        [f"spiffe://{DOMAIN}/Shared/a"],
        [f"spiffe://{DOMAIN}/shared/../coordinator"],
        ["spiffe://other.example/shared/a"],
        SHARED * 2,
        [*SHARED, f"spiffe://{DOMAIN}/coordinator"],
    ],
)
def test_what_is_no_shared_certificate_either(ids: list[str]) -> None:
    with pytest.raises(TobanError):
        services_of(ids, DOMAIN, shared=True)


def test_deadlines_are_required_and_bounded() -> None:
    method = "/toban_proto.v1.JobControl/Apply"
    assert admitted_seconds(method, 5.0, streaming=False) == 5.0
    assert admitted_seconds(method, 1e9, streaming=False) == MAX_UNARY_SECONDS
    assert admitted_seconds(method, 1e9, streaming=True) == MAX_STREAM_SECONDS
    assert admitted_seconds("/toban_proto.v1.Peer/Ping", 1e9, streaming=False) == 5.0
    with pytest.raises(TobanError) as caught:
        admitted_seconds(method, None, streaming=False)
    assert caught.value.code is ErrorCode.DEADLINE_REQUIRED


def test_bounds_of_deadlines_name_methods_that_exist() -> None:
    assert set(MAX_SECONDS) <= KNOWN_METHODS


@pytest.mark.parametrize("group", ["pci", "a", "a-1", "x" * 63])
def test_the_certificate_of_a_group_is_that_of_an_executor(group: str) -> None:
    ids = [f"spiffe://{DOMAIN}/executor/{group}"]
    assert services_of(ids, DOMAIN) == {"executor"}
    assert authorise("/toban_proto.v1.ExecutorGateway/Register", ids, DOMAIN) == f"executor/{group}"
    assert (group_of(name_of(ids, DOMAIN)), executor_name(group)) == (group, f"executor/{group}")
    with pytest.raises(TobanError):
        authorise("/toban_proto.v1.JobReader/GetRun", ids, DOMAIN)


@pytest.mark.parametrize("name", ["executor", "shared/all"])
def test_a_certificate_without_a_group_is_of_the_default_one(name: str) -> None:
    assert group_of(name) == "default" and executor_name("default") == "executor"


@pytest.mark.parametrize(
    "name",
    ["executor/", "executor/default", "executor/A", "executor/a/b", "executor/a.b", "executor/-a", "coordinator/pci"],
)
def test_what_names_no_group_names_no_service(name: str) -> None:
    with pytest.raises(TobanError, match="names no service of ours"):
        services_of([f"spiffe://{DOMAIN}/{name}"], DOMAIN)
