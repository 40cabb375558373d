"""`toban hook`: what it asks for, and what it prints."""

from pathlib import Path
from typing import Any

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import hooks_pb2 as pb

REPO = pb.Hook(
    name="repo",
    kind="github",
    mapping=pb.HookMapping(type_from="header:x-github-event", events={"push": "git.push", "star": "star"}),
    enabled=True,
    rate_per_minute=600,
    secrets=1,
)


@pytest.fixture
def hooks(cluster: Any) -> Any:
    """What the coordinator is asked about hooks."""
    return cluster.hooks


def test_a_new_one_prints_its_secret_once(hooks: Any, toban: Any) -> None:
    hooks.answers["SetHook"] = pb.SetHookResponse(hook=REPO, secret="abc")
    words = ("hook", "set", "repo", "--kind", "github", "--event", "push=git.push", "--event", "star", "--field", "ref")
    code, out, _ = toban(*words)
    assert code == 0 and out.splitlines() == [
        "abc",
        "hook repo (github): push=git.push, star, active",
        "the first line is its secret; it is not shown again",
    ]
    mapping = hooks.requests[-1].mapping
    assert (dict(mapping.events), list(mapping.fields)) == ({"push": "git.push", "star": "star"}, ["ref"])
    assert toban(*words, "-o", "name")[1] == "abc\n"


def test_a_change_sends_what_is_given(hooks: Any, toban: Any, tmp_path: Path) -> None:
    hooks.answers["SetHook"] = pb.SetHookResponse(hook=REPO)
    assert toban("hook", "set", "repo", "--disable", "--drop-old-secret")[0] == 0
    request = hooks.requests[-1]
    assert request.HasField("enabled") and not request.enabled and request.drop_old_secret
    assert not request.HasField("mapping") and not request.secret
    file = tmp_path / "secret"
    file.write_text("mine-and-long-enough\n")
    assert toban("hook", "set", "repo", "--secret-file", str(file), "--type", "x", "--rate", "60")[0] == 0
    request = hooks.requests[-1]
    assert (request.secret, request.mapping.event_type, request.rate_per_minute) == ("mine-and-long-enough", "x", 60)


def test_lists_shows_and_removes(hooks: Any, toban: Any) -> None:
    hooks.answers["ListHooks"] = pb.ListHooksResponse(hooks=[REPO])
    out = toban("hook", "list", "-o", "wide")[1]
    assert "push=git.push, star" in out and "header:x-github-event" in out and "600/min" in out
    assert "github" in toban("hook", "get", "repo")[1] and hooks.requests[-1].name == "repo"
    hooks.answers["RemoveHook"] = pb.RemoveHookResponse()
    assert toban("hook", "delete", "repo")[:2] == (0, "hook repo deleted\n")
    hooks.answers["ListHooks"] = TobanError(ErrorCode.NOT_FOUND, "there is no hook 'nope'")
    code, _, err = toban("hook", "get", "nope")
    assert code == 66 and "there is no hook" in err


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            pb.TestHookResponse(result="accepted", event_type="git.push", payload_json='{"a":1}'),
            'an event git.push with payload {"a":1}',
        ),
        (pb.TestHookResponse(result="ignored"), "ignored: no event for its value"),
        (pb.TestHookResponse(result="ping"), "answered as a ping"),
    ],
)
def test_a_test_says_what_a_message_would_be(hooks: Any, toban: Any, tmp_path: Path, answer: Any, says: str) -> None:
    hooks.answers["TestHook"] = answer
    file = tmp_path / "body.json"
    file.write_text('{"a": 1}')
    code, out, _ = toban("hook", "test", "repo", "--value", "push", "--payload", f"@{file}")
    assert code == 0 and says in out
    assert (hooks.requests[-1].value, hooks.requests[-1].payload_json) == ("push", '{"a": 1}')


def test_a_file_that_cannot_be_read(hooks: Any, toban: Any) -> None:
    code, _, err = toban("hook", "test", "repo", "--payload", "@/nowhere")
    assert code == 72 and "cannot be read" in err and hooks.requests == []
