"""`toban webhook`: requests, output, exit codes, and URLs and secrets that need not stand in argv."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toban_cli.commands import webhooks as commands
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import webhooks_pb2 as pb

PAGER = pb.Webhook(name="pager", origin="https://a.example", states=["FAILED"], status="active", enabled=True)


@pytest.fixture
def webhooks(cluster: Any) -> Any:
    return cluster.webhooks


def test_a_new_webhook_prints_its_secret_first(webhooks: Any, toban: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    webhooks.answers["SetWebhook"] = pb.SetWebhookResponse(webhook=PAGER, secret="whsec_abc")
    monkeypatch.setattr("sys.stdin", io.StringIO("https://a.example/T0/hidden\n"))
    code, out, _ = toban("webhook", "set", "pager", "--url", "-", "--state", "failed", "--label", "team=data")
    assert code == 0 and out.splitlines()[0] == "whsec_abc" and "not shown again" in out and "hidden" not in out
    [request] = webhooks.requests
    assert (request.url, list(request.filter.states)) == ("https://a.example/T0/hidden", ["FAILED"])
    assert dict(request.filter.labels) == {"team": "data"} and not request.HasField("enabled")
    assert toban("webhook", "set", "pager", "-o", "name")[1] == "whsec_abc\n"


def test_a_change_sends_what_is_given(webhooks: Any, toban: Any, tmp_path: Path) -> None:
    webhooks.answers["SetWebhook"] = pb.SetWebhookResponse(webhook=PAGER)
    assert toban("webhook", "set", "pager", "--disable")[:2] == (
        0,
        "webhook pager: FAILED of every job to https://a.example, active\n",
    )
    request = webhooks.requests[-1]
    assert request.HasField("enabled") and not request.enabled and not request.HasField("filter") and not request.url
    file = tmp_path / "secret"
    file.write_text("whsec_mine\n")
    assert toban("webhook", "set", "pager", "--secret-file", str(file), "--state", "all")[0] == 0
    request = webhooks.requests[-1]
    assert request.secret == "whsec_mine" and "LATE" not in request.filter.states and len(request.filter.states) == 6


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--state", "BROKEN"), 64, "is no state in which a run ends"),
        (("--label", "team"), 64, "is not a label; write team=ops"),
        (("--secret-file", "/nowhere"), 66, "--secret-file: /nowhere cannot be read"),
        (("--url", "-"), 65, "standard input has no line for: URL of the webhook"),
        (("--label", "team=a", "--label", "team=b"), 64, "'team' is given twice"),
    ],
)
def test_what_is_refused_here(
    webhooks: Any, toban: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, says: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    found, out, err = toban("webhook", "set", "pager", *words)
    assert (found, out) == (code, "") and says in err and webhooks.requests == []


def test_lists(webhooks: Any, toban: Any) -> None:
    down = pb.Webhook(
        name="pager", origin="https://a.example", states=["FAILED"], jobs=["load"], status="down", last_error="refused"
    )
    webhooks.answers["ListWebhooks"] = pb.ListWebhooksResponse(webhooks=[down])
    out = toban("webhook", "list", "-o", "wide")[1]
    assert "down" in out and "of load" in out and "refused" in out
    one = pb.WebhookDelivery(
        id=3, webhook="pager", type="run.failed", run_id=7, state="failed", attempts=12, status=500
    )
    webhooks.answers["ListDeliveries"] = pb.ListDeliveriesResponse(deliveries=[one])
    out = toban("webhook", "deliveries", "pager", "--state", "failed", "--run", "7")[1]
    assert "run.failed" in out and "500" in out
    request = webhooks.requests[-1]
    assert (request.webhook, request.state, request.run_id) == ("pager", "failed", 7)
    webhooks.answers["Redeliver"] = pb.RedeliverResponse(redelivered=1)
    assert toban("webhook", "redeliver", "pager", "--id", "3")[:2] == (0, "pager: 1 delivery sent again\n")
    webhooks.answers["RemoveWebhook"] = pb.RemoveWebhookResponse()
    assert toban("webhook", "delete", "pager")[:2] == (0, "webhook pager deleted\n")


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [
        ({"state": "delivered", "status": 204}, 0, "delivery 3 to pager: delivered, the target responded with 204\n"),
        ({"state": "pending", "error": "refused"}, 1, "delivery 3 to pager: refused\n"),
        ({"state": "pending"}, 1, "does admin-web run"),
    ],
)
def test_a_test_waits_for_its_outcome(
    webhooks: Any, toban: Any, monkeypatch: pytest.MonkeyPatch, end: dict[str, Any], code: int, says: str
) -> None:
    monkeypatch.setattr(commands, "TEST_SECONDS", 0.3)
    webhooks.answers["TestWebhook"] = pb.WebhookDelivery(id=3, webhook="pager", state="pending")
    webhooks.answers["ListDeliveries"] = pb.ListDeliveriesResponse(deliveries=[pb.WebhookDelivery(id=3, **end)])
    found, out, _ = toban("webhook", "test", "pager")
    assert found == code and says in out
    webhooks.answers["TestWebhook"] = TobanError(ErrorCode.NOT_FOUND, "there is no webhook 'pager'")
    assert toban("webhook", "test", "pager")[0] == 66


def test_a_terminal_does_not_show_the_url(webhooks: Any, toban: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[tuple[str, dict[str, Any]]] = []

    def prompt(text: str, **given: Any) -> str:
        prompts.append((text, given))
        return "https://a.example/T0/hidden"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", prompt)
    webhooks.answers["SetWebhook"] = pb.SetWebhookResponse(webhook=PAGER)
    assert toban("webhook", "set", "pager", "--url", "-")[0] == 0
    [(_, given)] = prompts
    assert given["hide_input"] and webhooks.requests[-1].url == "https://a.example/T0/hidden"


def test_a_secret_that_is_too_long_is_refused_and_not_cut(
    webhooks: Any, toban: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * 5000)
    code, _, err = toban("webhook", "set", "pager", "--secret-file", str(file))
    assert code == 65 and "more than 4096 characters" in err
    monkeypatch.setattr("sys.stdin", io.StringIO("https://a.example/" + "x" * 5000 + "\n"))
    code, _, err = toban("webhook", "set", "pager", "--url", "-")
    assert code == 65 and "more than 4096 characters" in err and webhooks.requests == []


def test_a_test_asks_less_and_less_often(webhooks: Any, toban: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Timer:
        def wait(self, seconds: float) -> None:
            pauses.append(seconds)

    monkeypatch.setattr(commands, "threading", SimpleNamespace(Event=Timer))
    webhooks.answers["TestWebhook"] = pb.WebhookDelivery(id=3, webhook="pager", state="pending")
    waiting = pb.WebhookDelivery(id=3, state="pending")
    webhooks.answers["ListDeliveries"] = pb.ListDeliveriesResponse(deliveries=[waiting])
    assert toban("webhook", "test", "pager")[0] == 1
    assert pauses[:6] == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0] and commands.TEST_SECONDS <= sum(pauses) < 40
