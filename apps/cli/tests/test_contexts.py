"""Contexts: the file that keeps them, who may read it, and which of all the settings decides where commands go."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toban_cli.contexts import Context, ContextFile, Contexts
from toban_cli.rest.site import check_url, read_site
from toban_domain.errors import ErrorCode, TobanError
from toban_proto.v1 import coordinator_pb2 as pb
from toban_proto.v1.logs_pb2 import VerifyArchiveResponse

Toban = Callable[..., tuple[int, str, str]]
TOKEN = "toban_pat_" + "0" * 64
PROD = Context(url="https://toban.example.com", token=TOKEN, token_id=7, user="ada", ca_file='/ca "x".pem')
LOCAL = Context(url="http://127.0.0.1:8080", token=TOKEN + "1")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContextFile:
    """A file with two contexts, prod is in use."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = ContextFile({"XDG_CONFIG_HOME": str(tmp_path)})
    with made.change() as held:
        held[0] = Contexts(current="prod", named={"prod": PROD, "local": LOCAL})
    return made


def test_what_is_stored_is_read_again_and_only_by_its_owner(file: ContextFile) -> None:
    assert file.load() == Contexts(current="prod", named={"prod": PROD, "local": LOCAL})
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.path.parent.iterdir()] == ["contexts.toml"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_can_open_is_refused(file: ContextFile, toban: Toban, mode: int) -> None:
    file.path.chmod(mode)
    for argv in (("context", "list"), ("context", "use", "local"), ("run", "list")):
        code, out, err = toban(*argv)
        assert (code, out) == (78, "") and f"mode {mode:04o}" in err and f"chmod 600 {file.path}" in err
    assert TOKEN not in err and stat.S_IMODE(file.path.stat().st_mode) == mode


@pytest.mark.parametrize(
    "content", ["x", "contexts = 3", "[contexts.a]\nurl = 3", "[contexts.a]", '[contexts.a]\nurl = "u"\nmore = "x"']
)
def test_a_damaged_file_names_the_remedy(file: ContextFile, content: str) -> None:
    file.path.write_text(content)
    with pytest.raises(TobanError, match=r"contexts\.toml cannot be read .*`toban login URL`") as caught:
        file.load()
    assert caught.value.code is ErrorCode.CONFIG_INVALID


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("contexts = 3", "contexts is not a table"),
        ("[contexts]\na = 3", "a is not a table"),
        ("stacks = 3", "stacks is not a table"),
        ("[contexts.a]\nurl = 3", "context a: url is a text in quotes"),
        ('[contexts.a]\nurl = "u"\ntoken_id = true', "context a: token_id is a number"),
        ("[contexts.a]", "context a has no url"),
        ('[contexts.a]\nurl = "u"\ntokn = "x"', "context a: tokn is not a known key; there are url, token"),
        ("[contexts.a]\nurl = u", "line 2"),
    ],
)
def test_a_damaged_file_names_the_place(file: ContextFile, content: str, place: str) -> None:
    file.path.write_text(content)
    with pytest.raises(TobanError) as caught:
        file.load()
    assert place in caught.value.message and "__init__" not in caught.value.message


def test_the_stack_of_a_context_is_kept_until_the_context_is_another(file: ContextFile) -> None:
    with file.change() as held:
        held[0] = held[0].with_one("dev", LOCAL, current=False, stack="/srv/a.toban")
    with file.change() as held:
        held[0] = held[0].with_one("dev", LOCAL, current=True).with_one("local", LOCAL, current=False)
    assert file.load().stacks == {"dev": "/srv/a.toban"}
    assert file.load().with_one("dev", PROD, current=False).stacks == {}
    assert file.load().without("dev").stacks == {}


def test_a_wrong_address_names_where_it_is_from(file: ContextFile, tmp_path: Path) -> None:
    with file.change() as held:
        held[0] = held[0].with_one("old", Context(url="toban.example.com", token=TOKEN), current=True)
    with pytest.raises(TobanError, match=r"^context old: 'toban\.example\.com' is no address"):
        read_site({"XDG_CONFIG_HOME": str(tmp_path)})
    with pytest.raises(TobanError, match=r"^TOBAN_URL: 'http://a\.example' is plain HTTP"):
        read_site({"TOBAN_URL": "http://a.example", "TOBAN_TOKEN": TOKEN})


def test_an_error_leaves_the_file_as_it_was(file: ContextFile) -> None:
    before = file.path.read_bytes()
    with pytest.raises(TobanError), file.change() as held:
        held[0] = held[0].without("prod")
        held[0].get("prod")
    assert file.path.read_bytes() == before


def test_changes_at_the_same_time_are_all_kept(file: ContextFile) -> None:
    def add(number: int) -> None:
        with file.change() as held:
            held[0] = held[0].with_one(f"n{number}", LOCAL, current=False)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(file.load().named) == {"prod", "local", *(f"n{number}" for number in range(8))}


def test_the_file_that_a_link_names_is_replaced(file: ContextFile, tmp_path: Path) -> None:
    file.path.rename(tmp_path / "elsewhere.toml")
    file.path.symlink_to(tmp_path / "elsewhere.toml")
    with file.change() as held:
        held[0] = held[0].without("local")
    assert file.path.is_symlink() and set(file.load().named) == {"prod"}


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, toban: Toban, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toban").write_text("a file")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    code, _, err = toban("context", "use", "prod")
    assert code == 78 and str(tmp_path / "toban") in err


def test_contexts_are_listed_used_shown_and_deleted_without_their_tokens(file: ContextFile, toban: Toban) -> None:
    code, out, err = toban("context", "list")
    assert code == 0 and [line.split()[:2] for line in out.splitlines()[1:]] == [["local", LOCAL.url], ["*", "prod"]]
    assert toban("context", "list", "-o", "name")[1].split() == ["local", "prod"]
    assert toban("context", "use", "local")[0] == 0 and file.load().current == "local"
    code, out, _ = toban("context", "get", "-o", "json")
    assert code == 0 and json.loads(out)["url"] == LOCAL.url
    code, out, _ = toban("context", "get", "prod")
    assert code == 0 and "number 7" in out and "ada" in out
    code, out, err = toban("context", "delete", "prod")
    assert code == 0 and "token 7 stays good" in err and set(file.load().named) == {"local"}
    assert TOKEN not in out + err
    assert toban("context", "delete", "local")[0] == 0 and file.load() == Contexts()


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        (
            "TOBAN_HOME",
            "/srv/clone/.toban",
            "as scripts/toban of a clone does, and counts before the current context; set TOBAN_CONTEXT=local",
        ),
        ("TOBAN_COORDINATORS", "a:1", "and counts before the current context; set TOBAN_CONTEXT=local"),
        ("SCHEDULER_COORDINATORS", "a:1", "and counts before the current context; set TOBAN_CONTEXT=local"),
        ("TOBAN_CONTEXT", "prod", "and counts before the current context; set TOBAN_CONTEXT=local"),
        ("TOBAN_URL", "https://other.example.com", "and counts before the current context; unset it"),
    ],
)
def test_a_choice_without_effect_says_so(
    file: ContextFile, toban: Toban, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, remedy: str
) -> None:
    assert toban("context", "use", "local")[1] == "commands use context local from now on\n"
    monkeypatch.setenv(variable, value)
    code, out, err = toban("context", "use", "local")
    assert code == 0 and out == "context local is the current one\n" and f"{variable} is set" in err and remedy in err
    assert file.load().current == "local"


@pytest.mark.parametrize("argv", [("use", "pord"), ("delete", "pord"), ("get", "pord")])
def test_a_context_that_is_not_there_names_those_that_are(
    file: ContextFile, toban: Toban, argv: tuple[str, ...]
) -> None:
    code, _, err = toban("context", *argv)
    assert code == 66 and "there is no context 'pord'; there are local, prod" in err


@pytest.mark.parametrize(
    ("variables", "url", "token"),
    [
        ({}, PROD.url, TOKEN),
        ({"TOBAN_CONTEXT": "local"}, LOCAL.url, LOCAL.token),
        ({"TOBAN_CONTEXT": "local", "TOBAN_TOKEN": "toban_pat_x"}, LOCAL.url, "toban_pat_x"),
        ({"TOBAN_URL": "https://a.example/api/v1/", "TOBAN_TOKEN": "toban_pat_x"}, "https://a.example", "toban_pat_x"),
        ({"TOBAN_URL": "https://a.example", "TOBAN_TOKEN": "toban_pat_x", "TOBAN_CONTEXT": "local"}, "https://a.example", "toban_pat_x"),
        ({"TOBAN_URL": "https://a.example", "TOBAN_TOKEN": "toban_pat_x", "TOBAN_DIRECT": "1"}, None, ""),
        ({"TOBAN_DIRECT": "1"}, None, ""),
        ({"_TOBAN_CONTEXT": "local"}, LOCAL.url, LOCAL.token),
        ({"_TOBAN_CONTEXT": "local", "TOBAN_CONTEXT": "prod", "TOBAN_COORDINATORS": "a:1"}, LOCAL.url, LOCAL.token),
        ({"_TOBAN_CONTEXT": "local", "TOBAN_TOKEN": "toban_pat_x"}, LOCAL.url, "toban_pat_x"),
        ({"_TOBAN_CONTEXT": "local", "TOBAN_URL": "https://a.example", "TOBAN_TOKEN": "toban_pat_x"}, LOCAL.url, LOCAL.token),
        ({"TOBAN_COORDINATORS": "a:1"}, None, ""),
        ({"SCHEDULER_COORDINATORS": "a:1"}, None, ""),
        ({"TOBAN_COORDINATORS": "a:1", "TOBAN_CONTEXT": "prod"}, PROD.url, TOKEN),
    ],
)  # fmt: skip
def test_where_commands_go(
    file: ContextFile, tmp_path: Path, variables: dict[str, str], url: str | None, token: str
) -> None:
    found = read_site({"XDG_CONFIG_HOME": str(tmp_path), **variables})
    assert (found.url if found else None) == url and (found.token if found else "") == token
    assert TOKEN not in repr(found)


@pytest.mark.parametrize("argv", [("--context", "local", "context", "get"), ("context", "get", "--context=local")])
def test_the_option_counts_before_variables_wherever_it_stands(
    file: ContextFile, toban: Toban, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    monkeypatch.setenv("TOBAN_URL", "https://other.example")
    monkeypatch.setenv("TOBAN_TOKEN", TOKEN)
    code, out, _ = toban(*argv, "-o", "json")
    assert (code, json.loads(out)["url"]) == (0, LOCAL.url)
    assert json.loads(toban("context", "get", "-o", "json")[1])["url"] == "https://other.example"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--context", "pord", "run", "list"), 66, "there is no context 'pord'; there are local, prod"),
        (("run", "list", "--context", ""), 64, "the name is empty; give that of a context"),
        (("--direct", "--context", "prod", "run", "list"), 65, "leave one of them out"),
        (("--direct", "run", "list", "--context", "prod"), 65, "leave one of them out"),
        (("--context", "prod", "logs", "9"), 64, "Did you mean `toban --context prod run logs 9`?"),
        (("--context",), 64, "requires an argument"),
    ],
)
def test_a_context_that_cannot_be_used_is_an_error(
    file: ContextFile, toban: Toban, argv: tuple[str, ...], code: int, words: str
) -> None:
    found, out, err = toban(*argv)
    assert (found, out) == (code, "") and words in err


def test_a_current_context_never_reroutes_the_commands_of_a_local_stack(file: ContextFile, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    given = {"XDG_CONFIG_HOME": str(tmp_path), "TOBAN_HOME": str(home)}
    assert read_site(given) is None
    (home / "stack.json").write_text(json.dumps({"sites": ["127.0.0.1:8081"], "coordinators": ["127.0.0.1:1"]}))
    assert read_site(given) is None
    (home / "context.json").write_text(json.dumps({"user": "local", "token": "toban_pat_local"}))
    found = read_site(given)
    assert found is not None
    assert (found.url, found.token, found.name) == ("http://127.0.0.1:8081", "toban_pat_local", "local stack")


@pytest.mark.parametrize(
    ("variables", "code", "message"),
    [
        ({"TOBAN_CONTEXT": "pord"}, ErrorCode.NOT_FOUND, "there is no context 'pord'; there are local, prod"),
        ({"TOBAN_URL": "https://a.example"}, ErrorCode.CONFIG_INVALID, "TOBAN_URL is set without TOBAN_TOKEN"),
        ({"TOBAN_URL": "https://a.example", "TOBAN_TOKEN": "hunter2"}, ErrorCode.CONFIG_INVALID, "TOBAN_TOKEN is no API token"),
        ({"TOBAN_CORDINATORS": "a:1"}, ErrorCode.CONFIG_INVALID, "did you mean TOBAN_COORDINATORS"),
        ({"SCHEDULER_CORDINATORS": "a:1"}, ErrorCode.CONFIG_INVALID, "did you mean SCHEDULER_COORDINATORS"),
    ],
)  # fmt: skip
def test_settings_that_lead_nowhere(
    file: ContextFile, tmp_path: Path, variables: dict[str, str], code: ErrorCode, message: str
) -> None:
    with pytest.raises(TobanError, match=message) as caught:
        read_site({"XDG_CONFIG_HOME": str(tmp_path), **variables})
    assert caught.value.code is code and "hunter2" not in str(caught.value)


def test_a_context_without_a_token_asks_for_a_sign_in(file: ContextFile, toban: Toban) -> None:
    with file.change() as held:
        held[0] = held[0].with_one("prod", Context(url=PROD.url), current=True)
    code, _, err = toban("run", "list")
    assert code == 77 and "`toban login --context prod`" in err


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://toban.example.com/", "https://toban.example.com"),
        ("https://toban.example.com:8443/sub/api/v1", "https://toban.example.com:8443/sub"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://[::1]:8080/api/v1", "http://[::1]:8080"),
        ("http://127.1.2.3", "http://127.1.2.3"),
    ],
)
def test_addresses(given: str, url: str) -> None:
    assert check_url(given) == url


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("http://toban.example.com", "plain HTTP.*https://toban.example.com"),
        ("http://localhost.example.com", "plain HTTP"),
        ("http://10.0.0.1", "plain HTTP"),
        ("toban.example.com", "is no address of a site"),
        ("ftp://a.example", "is no address of a site"),
        ("https://", "is no address of a site"),
        ("https://a.example:port", "is no address of a site"),
        ("https://a.exa mple", "is no address of a site"),
        ("https://a.example\r\nX: y", "is no address of a site"),
        ("https://ada:hunter2@a.example", "^the address has more than a host"),
        ("https://a.example?x=1", "more than a host"),
        ("https://a.example#x", "more than a host"),
    ],
)
def test_addresses_that_are_refused(given: str, message: str) -> None:
    with pytest.raises(TobanError, match=message) as caught:
        check_url(given)
    assert caught.value.code is ErrorCode.CONFIG_INVALID and "hunter2" not in str(caught.value)


def test_what_has_no_route_goes_to_the_coordinators_of_a_local_stack(
    cluster: Any, site_before: Any, toban: Toban, tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TOBAN_COORDINATORS", "TOBAN_LOG_ARCHIVERS", "TOBAN_TLS_DIR"):
        monkeypatch.delenv(name)
    cluster.reader.answers["ListRuns"] = pb.ListRunsResponse(runs=[pb.Run(id=5)])
    cluster.archive.verified = [VerifyArchiveResponse(log_day="2026-11-01", key="logs/a", ok=True)]
    with site_before(cluster) as url:
        addresses = {"coordinators": [cluster.coordinator], "log_archivers": [cluster.archiver], "tls_dir": str(tls)}
        (tmp_path / "stack.json").write_text(json.dumps({"sites": [url.removeprefix("http://")], **addresses}))
        (tmp_path / "context.json").write_text(json.dumps({"user": "local", "token": TOKEN}))
        monkeypatch.setenv("TOBAN_HOME", str(tmp_path))
        assert json.loads(toban("context", "get", "-o", "json")[1])["name"] == "local stack"
        assert toban("run", "list", "-o", "name") == (0, "5\n", "")
        code, out, err = toban("archive", "verify", "-o", "json")
        assert (code, err) == (0, "") and json.loads(out)[0]["key"] == "logs/a"
    # Without the site, --direct does it all.
    code, _, err = toban("run", "list")
    assert code == 69 and "`toban dev status`" in err and "`toban --direct`" in err
    assert toban("--direct", "run", "list", "-o", "name")[:2] == (0, "5\n")
