"""Whose call a command's is: the API token that goes with it, where it comes from, and where it does not go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toban_cli.cluster_config import read_settings
from toban_domain.errors import ErrorCode, TobanError

TOKEN = "toban_pat_" + "0" * 64


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a local stack with a context."""
    (tmp_path / "stack.json").write_text(json.dumps({"coordinators": ["127.0.0.1:1"]}))
    (tmp_path / "context.json").write_text(json.dumps({"user": "local", "token": TOKEN}))
    return tmp_path


@pytest.mark.parametrize(
    ("variables", "token"),
    [
        ({}, TOKEN),
        ({"TOBAN_TOKEN": "toban_pat_other"}, "toban_pat_other"),
        ({"TOBAN_DIRECT": "1"}, ""),
        ({"TOBAN_DIRECT": "1", "TOBAN_TOKEN": "toban_pat_other"}, ""),
        # Never to the coordinators of another cluster.
        ({"TOBAN_COORDINATORS": "elsewhere:1"}, ""),
        ({"SCHEDULER_COORDINATORS": "elsewhere:1"}, ""),
        ({"TOBAN_COORDINATORS": "elsewhere:1", "TOBAN_TOKEN": "toban_pat_other"}, "toban_pat_other"),
    ],
)
def test_the_token_of_a_command(home: Path, variables: dict[str, str], token: str) -> None:
    found = read_settings({"TOBAN_HOME": str(home), **variables})
    assert found.token == token and (not token or token not in repr(found))


def test_the_variable_of_the_command_counts_before_that_of_services() -> None:
    of_service = {
        "SCHEDULER_COORDINATORS": "service:1",
        "SCHEDULER_LOG_ARCHIVERS": "service:2",
        "SCHEDULER_TLS_DIR": "/service",
        "SCHEDULER_TRUST_DOMAIN": "service.internal",
    }
    own = {
        "TOBAN_COORDINATORS": "own:1",
        "TOBAN_LOG_ARCHIVERS": "own:2",
        "TOBAN_TLS_DIR": "/own",
        "TOBAN_TRUST_DOMAIN": "own.internal",
    }
    for variables, who in ((of_service, "service"), ({**of_service, **own}, "own")):
        found = read_settings(variables)
        assert (found.coordinators, found.log_archivers) == ((f"{who}:1",), (f"{who}:2",))
        assert (str(found.tls_dir), found.trust_domain) == (f"/{who}", f"{who}.internal")


def test_other_programs_have_variables_of_their_own_names() -> None:
    known = {"TOBAN_COORDINATORS": "a:1", "TOBAN_COORDINATOR_DATABASE_URL": "x", "TOBAN_CONTEXTS": "x"}
    assert read_settings(known).coordinators == ("a:1",)
    with pytest.raises(TobanError, match=r"TOBAN_TSL_DIR: unknown variable .* did you mean TOBAN_TLS_DIR\?"):
        read_settings({**known, "TOBAN_TSL_DIR": "/x"})


def test_a_stack_without_a_context_has_no_token(home: Path) -> None:
    (home / "context.json").unlink()
    assert read_settings({"TOBAN_HOME": str(home)}).token == ""


@pytest.mark.parametrize("content", ["", "[]", "{}", "null"])
def test_a_damaged_context_names_the_remedy(home: Path, content: str) -> None:
    (home / "context.json").write_text(content)
    with pytest.raises(TobanError, match=r"context\.json cannot be read .*`toban dev`.*--direct") as caught:
        read_settings({"TOBAN_HOME": str(home)})
    assert caught.value.code is ErrorCode.CONFIG_INVALID


def test_what_is_no_api_token_is_refused_without_its_value(home: Path) -> None:
    with pytest.raises(TobanError, match=r"TOBAN_TOKEN is no API token.*toban_pat_.*token add") as caught:
        read_settings({"TOBAN_HOME": str(home), "TOBAN_TOKEN": "hunter2"})
    assert caught.value.code is ErrorCode.CONFIG_INVALID and "hunter2" not in str(caught.value)
