"""Where a client goes: variables, the contexts of `toban login`, and what is refused."""

from pathlib import Path

import pytest

from toban import errors
from toban.client import Target

TOKEN = "toban_pat_abc"
FILE = """
current = "prod"
[contexts.prod]
url = "https://toban.example.com/x/"
token = "toban_pat_prod"
token_id = 7
ca_file = "/etc/ca.pem"
[contexts.test]
url = "https://test.example.com"
"""


@pytest.fixture
def contexts(tmp_path: Path) -> Path:
    path = tmp_path / "toban/contexts.toml"
    path.parent.mkdir()
    path.touch(mode=0o600)
    path.write_text(FILE)
    return path


def test_the_variables_count_first(contexts: Path, tmp_path: Path) -> None:
    given = {"XDG_CONFIG_HOME": str(tmp_path), "TOBAN_URL": "http://127.0.0.1:8080/api/v1", "TOBAN_TOKEN": TOKEN}
    target = Target.from_env(given)
    assert (target.url, target.token, target.ca_file) == ("http://127.0.0.1:8080", TOKEN, "")
    assert (target.base, target.address, target.is_tls) == ("/api/v1", ("127.0.0.1", 8080), False)
    with pytest.raises(errors.ConfigError, match="TOBAN_URL is set without TOBAN_TOKEN"):
        Target.from_env({"TOBAN_URL": "https://a.example.com"})


def test_the_current_context_and_a_named_one(contexts: Path, tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    target = Target.from_env(home)
    assert (target.url, target.token, target.ca_file) == (
        "https://toban.example.com/x",
        "toban_pat_prod",
        "/etc/ca.pem",
    )
    assert (target.base, target.address, target.host_header) == (
        "/x/api/v1",
        ("toban.example.com", 443),
        "toban.example.com",
    )
    named = Target.from_env({**home, "TOBAN_CONTEXT": "test", "TOBAN_TOKEN": TOKEN})
    assert (named.url, named.token) == ("https://test.example.com", TOKEN)
    with pytest.raises(errors.ConfigError, match="has no token"):
        Target.from_env({**home, "TOBAN_CONTEXT": "test"})
    with pytest.raises(errors.ConfigError, match="no context 'other', only: prod, test"):
        Target.from_env({**home, "TOBAN_CONTEXT": "other"})


def test_a_file_that_others_can_read_is_refused(contexts: Path, tmp_path: Path) -> None:
    contexts.chmod(0o644)
    with pytest.raises(errors.ConfigError, match="chmod 600"):
        Target.from_env({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("text", ["contexts = 3", "not toml"])
def test_a_damaged_file_is_named(contexts: Path, tmp_path: Path, text: str) -> None:
    contexts.write_text(text)
    with pytest.raises(errors.ConfigError, match=r"contexts\.toml cannot be read"):
        Target.from_env({"XDG_CONFIG_HOME": str(tmp_path)})


def test_no_site_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="set TOBAN_URL and TOBAN_TOKEN"):
        Target.from_env({"HOME": str(tmp_path)})


def test_a_file_without_contexts_names_no_site(contexts: Path, tmp_path: Path) -> None:
    """As `toban dev down` leaves it."""
    contexts.write_text('current = ""\n')
    with pytest.raises(errors.ConfigError, match=r"no site is named; .* `toban dev`"):
        Target.from_env({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://toban.example.com", "plain HTTP"),
        ("ftp://a", "no address of a site"),
        ("https://", "no address of a site"),
        ("https://a b", "no address of a site"),
        ("https://a:99999", "no address of a site"),
        ("https://user:pw@a", "leave out users"),
        ("https://a/?q=1", "leave out users"),
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str, words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words) as caught:
        Target(url=url, token=TOKEN)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "secretvalue", "toban_pat_a\nb", "toban_pat_"])
def test_a_token_that_cannot_be_is_refused_without_its_value(token: str) -> None:
    with pytest.raises(errors.ConfigError, match="is no API token") as caught:
        Target(url="https://a.example.com", token=token)
    assert "secretvalue" not in str(caught.value)


def test_an_unusable_ca_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="give a file of PEM certificates"):
        Target(url="https://a.example.com", token=TOKEN, ca_file=str(tmp_path / "absent")).tls()
