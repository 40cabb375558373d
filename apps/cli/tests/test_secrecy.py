"""API tokens are in no message, whatever is wrong with them or around them, and go to no other server than the site."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from toban.client.flow import RetryBudget
from toban.client.streams import server_events
from toban_cli import main
from toban_cli.contexts import Context
from toban_cli.rest.client import RestClient
from toban_cli.rest.sign_in import NewToken
from toban_cli.rest.site import Site
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.http_server import ScriptServer

Toban = Callable[..., tuple[int, str, str]]
HIDDEN = "5ecret" * 10
TOKEN = f"toban_pat_{HIDDEN}"
SITE = "http://127.0.0.1:9"


class Echo(BaseHTTPRequestHandler):
    """Refuses with the token in its message, or redirects to `server.elsewhere`."""

    server: Any

    def do_GET(self) -> None:
        """One answer."""
        self.server.asked.append(dict(self.headers))
        shown = {"status": 403, "code": "PERMISSION_DENIED", "detail": f"not with {self.headers['Authorization']}"}
        content = json.dumps(shown).encode()
        self.send_response(307 if self.server.elsewhere else 403)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(content)))
        if self.server.elsewhere:
            self.send_header("Location", self.server.elsewhere)
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@pytest.fixture
def echo() -> Iterator[Any]:
    """A server; `asked` has the headers of its requests."""
    made: Any = ScriptServer(("127.0.0.1", 0), Echo)
    made.asked, made.elsewhere = [], ""
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """The environment of a user without contexts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("TOBAN_URL", "TOBAN_TOKEN", "TOBAN_CONTEXT", "TOBAN_COORDINATORS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def is_hidden(toban: Toban, *argv: str) -> tuple[int, str]:
    """Exit code and message of a command that fails, with text and with JSON."""
    for form in ("json", "text"):
        code, out, err = toban(*argv, "--errors", form)
        assert code and HIDDEN not in out + err and "toban itself" not in err, err
    return code, err


@pytest.mark.parametrize("more", ["\nanother line", "\n" + TOKEN, " x", "\r\nX-Role: admin", "\x00", "é"])
def test_a_token_file_with_more_than_a_token(
    alone: pytest.MonkeyPatch, toban: Toban, tmp_path: Path, more: str
) -> None:
    (tmp_path / "token").write_text(TOKEN + more)
    code, err = is_hidden(toban, "login", SITE, "--token-file", str(tmp_path / "token"))
    assert code == 65 and f"--token-file {tmp_path}/token is no API token: one line that begins with toban_pat_" in err


def test_a_token_file_may_end_with_a_newline(alone: pytest.MonkeyPatch, toban: Toban, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\r\n")
    assert is_hidden(toban, "login", SITE, "--token-file", str(tmp_path / "token"))[0] == 69


@pytest.mark.parametrize("way", ["TOBAN_URL", "TOBAN_COORDINATORS"])
def test_a_variable_with_more_than_a_token(alone: pytest.MonkeyPatch, toban: Toban, way: str) -> None:
    alone.setenv(way, {"TOBAN_URL": SITE}.get(way, "127.0.0.1:9"))
    alone.setenv("TOBAN_TOKEN", f"{TOKEN}\nx")
    code, err = is_hidden(toban, "run", "list")
    assert code == 78 and "TOBAN_TOKEN is no API token" in err


def test_stored_tokens_with_more_than_a_token(alone: pytest.MonkeyPatch, toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "toban" / "contexts.toml"
    file.parent.mkdir(mode=0o700)
    file.write_text(f'current = "a"\n[contexts.a]\nurl = "{SITE}"\ntoken = "{TOKEN}\\nx"\n')
    file.chmod(0o600)
    code, err = is_hidden(toban, "run", "list")
    assert code == 78 and "the token of context a is no API token; `toban login` makes a new token" in err
    (tmp_path / "context.json").write_text(json.dumps({"token": f"{TOKEN}\nx"}))
    (tmp_path / "stack.json").write_text(json.dumps({"sites": ["127.0.0.1:9"], "coordinators": ["127.0.0.1:9"]}))
    alone.setenv("TOBAN_HOME", str(tmp_path))
    code, err = is_hidden(toban, "run", "list")
    assert code == 78 and "context.json has no API token; run `toban dev` again" in err


@pytest.mark.parametrize(
    "argv",
    [
        ("login", TOKEN),
        ("login", f"https://{TOKEN}"),
        ("login", f"https://{TOKEN}@a.example"),
        ("login", SITE, "--token", TOKEN),
        ("login", SITE, f"--token={TOKEN}"),
        ("login", SITE, TOKEN),
        ("login", SITE, "--context", TOKEN),
        ("context", "use", TOKEN),
        ("context", "get", TOKEN),
        ("run", "list", TOKEN),
        (TOKEN,),
        (f"--{TOKEN}",),
    ],
)
def test_a_token_in_the_wrong_place(
    alone: pytest.MonkeyPatch, toban: Toban, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.stdin.readline", lambda *_: "", raising=False)
    is_hidden(toban, *argv)


def test_a_server_that_repeats_the_token(alone: pytest.MonkeyPatch, toban: Toban, echo: Any) -> None:
    alone.setenv("TOBAN_URL", f"http://127.0.0.1:{echo.server_port}")
    alone.setenv("TOBAN_TOKEN", TOKEN)
    code, err = is_hidden(toban, "run", "list")
    assert code == 77 and "not with Bearer toban_pat_..." in err


def test_a_defect_with_the_token_in_its_text(alone: pytest.MonkeyPatch, toban: Toban) -> None:
    def broken(first: str) -> Any:
        raise ValueError(f"Invalid header value b'Bearer {TOKEN}'")

    alone.setattr(main, "build", broken)
    alone.setenv("TOBAN_TRACEBACK", "1")
    code, out, err = toban("run", "list")
    assert code == 70 and "Traceback" in err and "toban_pat_..." in err and HIDDEN not in out + err


def test_values_that_hold_a_token_do_not_show_it() -> None:
    held = [
        Site(url=SITE, token=TOKEN),
        Context(url=SITE, token=TOKEN),
        NewToken(user="a", role="b", secret=TOKEN, id=1, ends_at=""),
    ]
    assert HIDDEN not in repr(held)


def test_no_redirect_gets_the_token(echo: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.setblocking(False)
        echo.elsewhere = f"http://127.0.0.1:{other.getsockname()[1]}/api/v1/runs"
        client = RestClient(Site(url=f"http://127.0.0.1:{echo.server_port}", token=TOKEN))
        for call in (
            lambda: client.call("JobReader.ListRuns", pb.ListRunsRequest()),
            lambda: client.call("JobControl.CancelRun", pb.CancelRunRequest(id=5)),
            lambda: list(client.connection.iterate(server_events("/runs/5/stream", (), RetryBudget(seconds=0.0)))),
            lambda: client.call("JobReader.GetRun", pb.GetRunRequest(id=5)),
        ):  # fmt: skip
            with pytest.raises(
                TobanError, match=r"sends requests on to http://127.*use the address of the site"
            ) as caught:
                call()
            assert caught.value.code is ErrorCode.CONFIG_INVALID
        client.close()
        with pytest.raises(BlockingIOError):
            other.accept()
    assert len(echo.asked) == 4


def test_no_proxy_gets_the_token(alone: pytest.MonkeyPatch, toban: Toban, echo: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        for name in ("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            alone.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        alone.setenv("TOBAN_URL", f"http://127.0.0.1:{echo.server_port}")
        alone.setenv("TOBAN_TOKEN", TOKEN)
        assert toban("run", "list")[0] == 77
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert [headers["Authorization"] for headers in echo.asked] == [f"Bearer {TOKEN}"]
