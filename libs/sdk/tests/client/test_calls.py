"""Both clients: what they send, what they make of answers, and when they send again."""

import json
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from toban import errors
from toban.client import Client, Target, flow
from toban.client.models import TERMINAL_STATES, RunState
from toban_domain import run as domain
from toban_domain.errors import ErrorCode
from toban_domain.run import TERMINAL
from toban_testing.scripted_site import ScriptedSite, breaks, problem, says

RUN = {"id": 7, "job": "hello", "state": "RUNNING", "started_at": "2026-11-23T10:00:00+00:00", "new_field": 1}


def test_a_run_is_started_once_for_its_key(client: Any, site: ScriptedSite) -> None:
    site.script = [says(201, {"run_id": 7, "created": True})]
    at = datetime(2026, 11, 24, tzinfo=UTC)
    started = client.do(lambda c: c.runs.start("a b", {"n": 1}, idempotency_key="order-7", scheduled_for=at))
    assert (started.run_id, started.created) == (7, True)
    [seen] = site.seen
    assert (seen.method, seen.path) == ("POST", "/api/v1/jobs/a%20b/runs")
    assert seen.body == {"payload": {"n": 1}, "scheduled_for": "2026-11-24T00:00:00+00:00"}
    assert seen.headers["idempotency-key"] == "order-7"
    assert seen.headers["authorization"] == "Bearer toban_pat_test"
    assert seen.headers["user-agent"].startswith("toban-sdk/")


def test_a_start_without_a_key_is_repeated_under_one_random_key(client: Any, site: ScriptedSite) -> None:
    site.script = [breaks, problem(503, "UNAVAILABLE"), says(201, {"run_id": 7, "created": True})]
    assert client.do(lambda c: c.runs.start("a")).run_id == 7
    assert len(site.seen) == 3 and len({seen.headers["idempotency-key"] for seen in site.seen}) == 1


def test_a_run_has_typed_fields_and_its_whole_json(client: Any, site: ScriptedSite) -> None:
    site.script = [says(200, RUN)]
    run = client.do(lambda c: c.runs.get(7))
    assert run.started_at == datetime(2026, 11, 23, 10, tzinfo=UTC) and run.finished_at is None
    assert run.raw["new_field"] == 1 and not run.is_terminal and run.check() is run


def test_the_states_are_those_of_the_service() -> None:
    assert {state.value for state in TERMINAL} == TERMINAL_STATES
    assert {state for kind in get_args(RunState) for state in get_args(kind)} == set(domain.RunState)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "JOB_NOT_FOUND", errors.NotFoundError),
        (409, "JOB_DISABLED", errors.ConflictError),
        (412, "CONFLICT", errors.ConflictError),
        (400, "PAYLOAD_INVALID", errors.InvalidRequestError),
        (413, "PAYLOAD_TOO_LARGE", errors.InvalidRequestError),
        (401, "UNAUTHENTICATED", errors.AccessError),
        (403, "PERMISSION_DENIED", errors.AccessError),
        (500, "INTERNAL", errors.TobanError),
    ],
)
def test_a_problem_is_an_exception_of_its_kind(
    client: Any, site: ScriptedSite, status: int, code: str, kind: type[errors.TobanError]
) -> None:
    mistakes = [{"where": "spec.steps", "message": "is missing"}]
    site.script = [problem(status, code, "no such thing", errors=mistakes, context={"run_id": 3})]
    with pytest.raises(kind) as caught:
        client.do(lambda c: c.runs.get(7))
    error = caught.value
    assert (error.code, error.status, error.request_id, error.context) == (code, status, "r1", {"run_id": 3})
    assert error.mistakes == (errors.Mistake("spec.steps", "is missing"),)
    assert str(error) == f"{code}: no such thing; spec.steps: is missing"
    assert code in set(ErrorCode) and len(site.seen) == 1


def test_a_mistake_of_a_manifest_is_printed_once(client: Any, site: ScriptedSite) -> None:
    text = "is 'Mars/Base', which is no zone; use an IANA name"
    mistakes = [{"where": "manifests.1.spec.timezone", "message": text}]
    detail = f"manifests.1: spec.timezone: {text} (and 2 more)"
    site.script = [problem(400, "MANIFEST_INVALID", detail, errors=mistakes, context={"left_out": 2})]
    with pytest.raises(errors.InvalidRequestError) as caught:
        client.do(lambda c: c.apply([{"kind": "Schedule"}]))
    assert str(caught.value) == f"MANIFEST_INVALID: manifests.1.spec.timezone: {text}; and 2 more"


def test_retry_after_is_honoured(client: Any, site: ScriptedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toban.client.flow._FIRST_PAUSE", 0.0)
    site.script = [problem(429, "RESOURCE_EXHAUSTED", Retry_After="0"), says(200, RUN)]
    assert client.do(lambda c: c.runs.get(7)).id == 7


def test_a_wish_above_the_budget_is_an_error_at_once(client: Any, site: ScriptedSite) -> None:
    site.script = [problem(429, "RESOURCE_EXHAUSTED", Retry_After="3600")]
    with pytest.raises(errors.RateLimitedError) as caught:
        client.do(lambda c: c.runs.get(7))
    assert caught.value.retry_after == 3600.0 and len(site.seen) == 1


def test_a_change_whose_answer_is_lost_is_not_sent_again(client: Any, site: ScriptedSite) -> None:
    site.script = [breaks]
    with pytest.raises(errors.OutcomeUnknownError, match="read before you repeat it") as caught:
        client.do(lambda c: c.runs.cancel(7, reason="wrong input"))
    assert caught.value.is_unknown and len(site.seen) == 1
    assert (site.seen[0].path, site.seen[0].body) == ("/api/v1/runs/7/cancel", {"reason": "wrong input", "mode": ""})


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_change_that_may_have_been_carried_out_is_unknown(client: Any, site: ScriptedSite, status: int) -> None:
    site.script = [problem(status, "UNAVAILABLE", "the leader changes", Retry_After="2")]
    with pytest.raises(errors.OutcomeUnknownError, match="the leader changes") as caught:
        client.do(lambda c: c.runs.cancel(7))
    error = caught.value
    assert (error.status, error.retry_after, error.request_id, len(site.seen)) == (status, 2.0, "r1", 1)


def test_a_read_that_finds_no_coordinator_is_no_unknown_change(connect: Any, site: ScriptedSite) -> None:
    site.script = [problem(503, "UNAVAILABLE")]
    with pytest.raises(errors.UnavailableError) as caught:
        connect(site.url, retry_seconds=0.0).do(lambda c: c.runs.get(7))
    assert not caught.value.is_unknown


def test_a_start_whose_last_try_is_not_sent_may_have_happened_before() -> None:
    """Without a clock: the flow is driven by hand."""
    request = flow.Request(method="POST", path="/jobs/a/runs", repeatable=True)
    tries = flow.exchange(request, 0.001)
    assert next(tries) is request
    assert isinstance(tries.throw(flow.TransportError("broke off")), flow.Pause) and next(tries) is request
    with pytest.raises(errors.OutcomeUnknownError, match="refused; a change may have happened"):
        tries.throw(flow.TransportError("refused", never_sent=True))


def test_manifests_whose_answer_is_lost_are_not_sent_again(client: Any, site: ScriptedSite) -> None:
    site.script = [breaks, says(200, {"applied": []})]
    with pytest.raises(errors.OutcomeUnknownError):
        client.do(lambda c: c.apply([{"kind": "Job"}]))
    assert len(site.seen) == 1
    site.script = [breaks, says(200, {"applied": []})]
    assert client.do(lambda c: c.apply([{"kind": "Job"}], dry_run=True)) == []


def test_a_change_that_was_refused_for_the_rate_is_sent_again(client: Any, site: ScriptedSite) -> None:
    site.script = [problem(429, "RESOURCE_EXHAUSTED"), says(200, {"run": {**RUN, "state": "CANCEL_REQUESTED"}})]
    assert client.do(lambda c: c.runs.kill(7)).state == "CANCEL_REQUESTED"
    assert [seen.body["mode"] for seen in site.seen] == ["kill", "kill"]


def test_a_connection_that_the_site_closed_meanwhile_costs_nothing(client: Any, site: ScriptedSite) -> None:
    def last_answer(handler: Any) -> None:
        says(200, RUN)(handler)
        handler.close_connection = True  # Without the header: the client keeps it.

    site.script = [last_answer, says(200, RUN)]
    assert [client.do(lambda c: c.runs.get(7)).id for _ in range(2)] == [7, 7]


def test_an_absent_site_is_an_error_within_the_budget(connect: Callable[..., Any]) -> None:
    with socket.socket() as bound:
        # Bound and not listening: nobody else gets the port, and connections are refused.
        bound.bind(("127.0.0.1", 0))
        absent = connect(f"http://127.0.0.1:{bound.getsockname()[1]}", retry_seconds=0.005)
        with pytest.raises(errors.UnavailableError, match="cannot reach the site") as caught:
            absent.do(lambda c: c.events.emit("a"))
    # The connection was refused, so the event does not exist.
    assert not caught.value.is_unknown and caught.value.code == "UNAVAILABLE"


def test_a_redirect_is_not_followed(client: Any, site: ScriptedSite) -> None:
    site.script = [says(302, {}, Location=f"{site.url}/elsewhere")]
    with pytest.raises(errors.ConfigError, match="/elsewhere"):
        client.do(lambda c: c.runs.get(7))
    assert len(site.seen) == 1


def test_an_answer_of_something_else_names_it(client: Any, site: ScriptedSite) -> None:
    site.script = [says(200, "x", "text/html")]
    with pytest.raises(errors.ConfigError, match="not from Toban: status 200 with text/html"):
        client.do(lambda c: c.runs.get(7))


def test_pages_are_read_as_they_are_needed(client: Any, site: ScriptedSite) -> None:
    pages = [[1, 2], [3], [4]]
    cursors = ["c1", "c2", ""]
    site.script = [
        says(200, {"runs": [{**RUN, "id": one} for one in ids], "next_cursor": cursor})
        for ids, cursor in zip(pages, cursors, strict=True)
    ]
    found = client.do(lambda c: c.runs.list(job="a", state=["FAILED", "EXPIRED"], label={"team": "ops"}))
    assert [run.id for run in found] == [1, 2, 3, 4]
    assert site.seen[0].path == "/api/v1/runs?job=a&state=FAILED&state=EXPIRED&label=team%3Dops&limit=100"
    assert site.seen[2].path.endswith("&limit=100&cursor=c2")


@pytest.mark.parametrize("name", ["runs", "events", "jobs", "schedules", "triggers"])
def test_no_list_ends_before_its_last_page(client: Any, site: ScriptedSite, name: str) -> None:
    one = {**RUN, "name": "a", "event_type": "a", "version": 1, "enabled": True, "status": "active"}
    site.script = [says(200, {name: [one] * size, "next_cursor": cursor}) for size, cursor in ((100, "c"), (1, ""))]
    assert len(client.do(lambda c: getattr(c, name).list())) == 101


@pytest.mark.parametrize(
    ("group", "kind", "spec"),
    [
        ("jobs", "Job", {"steps": [{"id": "step-1", "argv": ["true"]}]}),
        ("schedules", "Schedule", {"job": "slow", "cron": "@daily"}),
        ("triggers", "EventTrigger", {"job": "slow", "event_type": "order.paid"}),
    ],
)
def test_a_definition_that_was_read_can_be_applied(
    client: Any, site: ScriptedSite, group: str, kind: str, spec: dict[str, Any]
) -> None:
    metadata = {"name": "slow", "description": "takes long", "labels": {"team": "ops"}}
    answer = {"name": "slow", "version": 3, "enabled": True, "spec": {**metadata, **spec}}
    site.script = [says(200, {**answer, "job": "slow", "status": "active", "event_type": "order.paid"})]
    found = client.do(lambda c: getattr(c, group).get("slow"))
    assert (found.spec, found.labels, found.raw["spec"]["name"]) == (spec, {"team": "ops"}, "slow")
    site.script = [says(200, {"applied": []})]
    client.do(lambda c: c.apply(found.manifest))
    assert site.seen[-1].body["manifests"] == [
        {"apiVersion": "toban/v1", "kind": kind, "metadata": metadata, "spec": spec}
    ]


def test_a_limit_ends_a_list(client: Any, site: ScriptedSite) -> None:
    site.script = [says(200, {"runs": [{**RUN, "id": one} for one in (1, 2, 3)], "next_cursor": "c"})]
    assert [run.id for run in client.do(lambda c: c.runs.list(ahead=True, limit=2))] == [1, 2]
    assert [seen.path for seen in site.seen] == ["/api/v1/runs?ahead=true&limit=2"]


def test_an_event_without_a_key_is_sent_once(client: Any, site: ScriptedSite) -> None:
    site.script = [problem(503, "UNAVAILABLE")]
    with pytest.raises(errors.UnavailableError):
        client.do(lambda c: c.events.emit("order.paid", {"id": 7}))
    assert len(site.seen) == 1 and "idempotency-key" not in site.seen[0].headers
    site.script = [breaks, says(201, {"event_id": 3, "duplicate": False})]
    assert client.do(lambda c: c.events.emit("order.paid", {"id": 7}, dedupe_key="order-7")).event_id == 3


def test_wrong_values_are_refused_before_anything_is_sent(client: Any, site: ScriptedSite) -> None:
    for wrong in (
        lambda c: c.runs.start("a", scheduled_for=datetime(2026, 1, 1)),  # noqa: DTZ001
        lambda c: c.jobs.get(".."),
        lambda c: c.schedules.pause("s", until=datetime(2026, 1, 1)),  # noqa: DTZ001
        lambda c: c.runs.start("a", idempotency_key="a\r\nX-Evil: 1"),
        lambda c: c.runs.start("a", {"n": float("nan")}),
    ):
        with pytest.raises(ValueError):
            client.do(wrong)
    assert site.seen == []


def test_schedules_jobs_and_manifests(client: Any, site: ScriptedSite) -> None:
    schedule = {"name": "s", "job": "j", "enabled": True, "status": "paused"}
    site.script = [says(200, schedule)]
    assert client.do(lambda c: c.schedules.pause("s", reason="why")).status == "paused"
    assert client.do(lambda c: c.schedules.resume("s")).name == "s"
    assert [seen.path for seen in site.seen] == ["/api/v1/schedules/s/pause", "/api/v1/schedules/s/resume"]
    site.script = [says(200, schedule | {"paused_until": "2026-12-01T07:00:00Z"})]
    until = datetime(2026, 12, 1, 7, tzinfo=UTC)
    assert client.do(lambda c: c.schedules.pause("s", until=until)).paused_until == until
    assert site.seen[-1].body == {"reason": "", "until": "2026-12-01T07:00:00+00:00"}
    applied = {"kind": "Job", "name": "j", "action": "created", "version": 1}
    site.script = [says(200, {"applied": [applied]})]
    [one] = client.do(lambda c: c.apply([{"kind": "Job"}], dry_run=True))
    assert (one.kind, one.action) == ("Job", "created")
    assert site.seen[-1].body == {"manifests": [{"kind": "Job"}], "dry_run": True}
    site.script = [says(200, {"whatever": [1]})]
    assert client.do(lambda c: c.call("GET", "/executors", include_off=True)) == {"whatever": [1]}
    assert site.seen[-1].path == "/api/v1/executors?include_off=true"
    client.do(lambda c: c.call("GET", "/executors", include_off=False, limit=0, cursor=None))
    assert site.seen[-1].path == "/api/v1/executors?include_off=false&limit=0"


def test_an_untrusted_certificate_is_refused_before_the_token_is_sent(connect: Callable[..., Any], tls: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "coordinator/tls.crt", tls / "coordinator/tls.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                with listener.accept()[0] as accepted, context.wrap_socket(accepted, server_side=True) as wrapped:
                    received.append(wrapped.recv(1))
            except OSError:
                return

        received: list[bytes] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        one = connect(f"https://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(errors.ConfigError, match="not trusted"):
            one.do(lambda c: c.runs.get(7))
        thread.join(10)
    assert received in ([], [b""])


def test_threads_share_a_client(site: ScriptedSite) -> None:
    site.script = [says(200, RUN)]
    with Client(Target(url=site.url, token="toban_pat_test")) as shared:
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(shared.runs.get(7).id)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [7] * 16


def test_messages_of_errors_never_have_the_token(site: ScriptedSite) -> None:
    target = Target(url=site.url, token="toban_pat_secretvalue")
    assert "secretvalue" not in repr(target)
    with pytest.raises(errors.ConfigError) as caught:
        Target(url=site.url, token="hunter2 secretvalue")
    assert "secretvalue" not in str(caught.value) and json.dumps(str(caught.value))
