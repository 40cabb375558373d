"""`toban open` prints an address, and gives it to a browser where there is one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Toban = Callable[..., tuple[int, str, str]]
TOKEN = "toban_pat_" + "0" * 64
URL = "https://toban.example.com"


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A site, and no browser."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TOBAN_URL", URL)
    monkeypatch.setenv("TOBAN_TOKEN", TOKEN)
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "TOBAN_COORDINATORS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        ((), "/"),
        (("job", "hello"), "/jobs/hello"),
        (("job", "a b?#"), "/jobs/a%20b%3F%23"),
        (("schedule", "nightly"), "/schedules/nightly"),
        (("run", "12"), "/runs/12"),
    ],
)
def test_the_address_is_printed(toban: Toban, argv: tuple[str, ...], path: str) -> None:
    assert toban("open", *argv) == (0, f"{URL}{path}\n", "")


def test_a_browser_gets_the_address(toban: Toban, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    assert toban("open", "run", "12")[:2] == (0, f"{URL}/runs/12\n")
    assert (tmp_path / "opened").read_text() == f"{URL}/runs/12"


def test_the_local_stack_has_a_site_even_for_the_certificate(
    toban: Toban, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TOBAN_URL")
    monkeypatch.setenv("TOBAN_HOME", str(tmp_path))
    (tmp_path / "stack.json").write_text(json.dumps({"sites": ["127.0.0.1:8081"], "coordinators": ["127.0.0.1:1"]}))
    assert toban("--direct", "open", "job", "hello") == (0, "http://127.0.0.1:8081/jobs/hello\n", "")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("job",), 64, "which job is missing; `toban job list` shows them"),
        (("run", "hello"), 64, "'hello' is not the number of a run"),
        (("user", "bob"), 64, "'user' is not known"),
        (("job", "a/b"), 64, "contains '/'"),
    ],
)
def test_what_has_no_page_is_refused(toban: Toban, argv: tuple[str, ...], code: int, words: str) -> None:
    found, out, err = toban("open", *argv)
    assert (found, out) == (code, "") and words in err


def test_without_a_site_the_remedy_is_named(toban: Toban, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOBAN_URL")
    code, out, err = toban("open")
    assert (code, out) == (78, "") and "name one with `toban login URL` or TOBAN_URL" in err
