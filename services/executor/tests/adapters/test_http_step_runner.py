"""The program of an http step: where a secret may go. Its other tests are in test_http_steps.py."""

import json
from typing import Any

import pytest

from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile
from toban_executor.adapters import http_step_runner
from toban_executor.adapters.http_steps import HttpSteps
from toban_executor.decide.models import StartOrder, StepOrder


@pytest.mark.parametrize(
    ("url", "secret", "sent"),
    [
        ("http://api.example/a", True, []),
        ("https://api.example/a", True, ["1.1.1.1"]),
        ("http://api.example/a", False, ["1.1.1.1"]),
        ("http://both.example/a", True, ["10.0.0.1"]),
        ("http://local.example/a", True, ["127.0.0.1", "::1"]),
        ("http://[::ffff:1.1.1.1]/a", True, []),
    ],
)
def test_a_secret_goes_to_no_public_address_in_clear_text(
    url: str, secret: bool, sent: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = {
        "api.example": ["1.1.1.1"],
        "both.example": ["1.1.1.1", "10.0.0.1"],
        "local.example": ["127.0.0.1", "::1"],
        "::ffff:1.1.1.1": ["::ffff:1.1.1.1"],
    }
    tried: list[str] = []

    def connect(address: tuple[str, int], timeout: float) -> Any:
        tried.append(address[0])
        raise OSError("refused")

    monkeypatch.setattr("socket.getaddrinfo", lambda host, *_, **__: [(0, 0, 0, "", (one,)) for one in found[host]])
    monkeypatch.setattr("socket.create_connection", connect)
    secret_headers = {"secret_headers": {"Authorization": ["Bearer ", {"file": "api.key"}]}}
    request = {"url": url, **(secret_headers if secret else {"headers": {"Authorization": "Bearer sesame-open"}})}
    step = StepOrder(type="http", argv=(), id="call", stdin=json.dumps(request))
    secrets = (SecretFile(file="api.key", file_env="", value=b"sesame-open"),)
    steps = HttpSteps(allow="public,10.0.0.1,127.0.0.1,::1", ca_file=None)
    [step] = steps.complete(StartOrder(key=AttemptKey(1, 1), steps=(step,), secrets=secrets)).steps
    assert http_step_runner.main(json.loads(step.stdin), {}) == 1
    assert tried == sent
    said = capfd.readouterr().err
    assert ("is at a public address, and header 'Authorization' has a secret; use https" in said) == (not sent)
