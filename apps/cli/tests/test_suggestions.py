"""What was probably meant by arguments that no command takes."""

import pytest

from toban_cli.main import run


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("logs 9", "toban run logs 9"),
        ("start hello", "toban run start hello"),
        ("job start hello", "toban run start hello"),
        ("job run hello", "toban run start hello"),
        ("ps", "toban run list"),
        ("stop 9", "toban run cancel 9"),
        ("schedule stop nightly", "toban schedule pause nightly"),
        ("run start hello name=Ada", "toban run start hello --param name=Ada"),
        ("run start hello a=1 b=2 --wait", "toban run start hello --wait --param a=1 --param b=2"),
    ],
)
def test_the_command_that_was_meant_is_named(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(typed.split()) == 64
    assert f"Did you mean `{meant}`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "typed",
    [
        "frobnicate",
        "executor delete nightly",
        "executor rm nightly",
        "rm nightly",
        "run start a b",
        "apply",
        "schedule frobnicate x",
    ],
)
def test_nothing_is_guessed_that_would_do_something_else(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(typed.split()) == 64
    assert "Did you mean" not in capsys.readouterr().err
