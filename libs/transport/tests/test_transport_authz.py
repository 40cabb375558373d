"""The table of callers against the table in docs/architecture.md, method by method and caller by caller."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from toban_transport.server import KNOWN_METHODS, PROTO_METHODS

DOMAIN = "toban.internal"
# Written by hand a second time, from docs/architecture.md: the rules must agree with the design, not with themselves.
CALLERS = {
    "WorkerService": {"coordinator"},
    "ExecutorGateway": {"executor"},
    "ArchiveGateway": {"log-archiver"},
    "JobReader": {"admin-web", "admin-cli"},
    "JobControl": {"admin-web", "admin-cli"},
    "Operations": {"admin-web", "admin-cli"},
    "Accounts": {"admin-web", "admin-cli"},
    "ExternalWork": {"external-worker", "admin-web"},
    "Webhooks": {"admin-web", "admin-cli"},
    "WebhookOutbox": {"admin-web"},
    "Hooks": {"admin-web", "admin-cli"},
    "HookReceiver": {"admin-web"},
    "Peer": {"coordinator"},
    "LogIngest": {"executor"},
    "LogReader": {"admin-web", "admin-cli"},
    "LogArchive": {"admin-cli"},
    "Health": set(SERVICES),
}
# For emergencies only: no person of the site and of the REST interface reaches them.
BY_CERTIFICATE = {"AdoptEpoch", "CreateBootstrapLink"}
# A browser begins and ends them.
OF_THE_SITE = {"StartOidcSignIn", "SignInWithOidc"}


def callers_of(method: str) -> set[str]:
    service, _, name = method.removeprefix("/").partition("/")
    if name in OF_THE_SITE:
        return {"admin-web"}
    return {"admin-cli"} if name in BY_CERTIFICATE else CALLERS[service.rpartition(".")[2]]


def test_every_method_has_a_rule_and_no_rule_is_stale() -> None:
    assert set(METHOD_RULES) == KNOWN_METHODS
    assert {method.split("/")[1].rpartition(".")[2] for method in KNOWN_METHODS} == set(CALLERS)
    check_rules(KNOWN_METHODS, KNOWN_METHODS)


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
    assert "SCHEDULER_TLS_DIR" in caught.value.message
    assert "default name: scheduler-grpc-tls-admin-cli" in caught.value.message


@pytest.mark.parametrize("service", sorted(name for name, callers in CALLERS.items() if "admin-cli" not in callers))
def test_a_refusal_never_suggests_the_certificate_of_a_service(service: str) -> None:
    method = next(name for name in sorted(KNOWN_METHODS) if f".{service}/" in name)
    with pytest.raises(TobanError) as caught:
        authorise(method, [f"spiffe://{DOMAIN}/admin-cli"], DOMAIN)
    assert f"use the certificate of {' or '.join(sorted(CALLERS[service]))} (" in caught.value.message
    assert "Secret" not in caught.value.message and "SCHEDULER_TLS_DIR" not in caught.value.message


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
    assert set(MAX_SECONDS) <= PROTO_METHODS


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
