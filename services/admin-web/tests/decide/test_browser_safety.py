"""Cookie names, origins, form tokens, redirect targets, addresses behind proxies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.browser_safety import (
    client_address,
    cookie_name,
    form_token,
    is_form_token,
    is_same_origin,
    local_path,
)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("toban.example", "__Host-toban-session"),
        ("toban.example:8443", "__Host-toban-session"),
        ("127.0.0.1.evil.example", "__Host-toban-session"),
        ("127.0.0.1:8080", "toban-session-8080"),
        ("[::1]:8080", "toban-session-8080"),
        ("localhost", "toban-session"),
    ],
)
def test_only_loopback_has_a_cookie_without_tls(host: str, name: str) -> None:
    assert cookie_name("session", host) == name


# Reviewed by hand: Origin, Sec-Fetch-Site, Host → accepted.
ORIGINS = [
    ("https://toban.example", "", "toban.example", True),
    ("https://toban.example", "cross-site", "TOBAN.example", True),
    ("https://toban.example:8443", "", "toban.example:8443", True),
    ("http://toban.example", "same-origin", "toban.example", False),
    ("https://toban.example:444", "", "toban.example", False),
    ("https://toban.example.evil", "", "toban.example", False),
    ("https://evil.example", "same-origin", "toban.example", False),
    ("null", "same-origin", "toban.example", False),
    ("", "same-origin", "toban.example", True),
    ("", "same-site", "toban.example", False),
    ("", "none", "toban.example", False),
    ("", "", "toban.example", False),
    ("http://127.0.0.1:8080", "", "127.0.0.1:8080", True),
    ("http://127.0.0.1:9999", "same-site", "127.0.0.1:8080", False),
    ("http://localhost:8080", "", "127.0.0.1:8080", False),
]


@pytest.mark.parametrize(("origin", "fetch_site", "host", "accepted"), ORIGINS)
def test_requests_of_other_origins_are_refused(origin: str, fetch_site: str, host: str, accepted: bool) -> None:
    assert is_same_origin(origin=origin, fetch_site=fetch_site, host_header=host) is accepted


def test_a_form_token_is_good_for_one_cookie_and_one_purpose() -> None:
    token = form_token("secret", "leave")
    assert is_form_token(token, "secret", "leave")
    assert not is_form_token(token, "other", "leave") and not is_form_token(token, "secret", "enter")
    assert not is_form_token(form_token("", "leave"), "", "leave") and not is_form_token("ü", "secret", "leave")


@pytest.mark.parametrize("raw", ["/", "/runs?state=FAILED&cursor=a", "/jobs/日本"])
def test_paths_of_the_site_are_kept(raw: str) -> None:
    assert local_path(raw) == raw


@pytest.mark.parametrize(
    "raw", ["", "runs", "//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nb", "/" * 3]
)
def test_other_addresses_lead_to_the_first_page(raw: str) -> None:
    assert local_path(raw) == "/"


@given(st.text())
def test_no_text_leads_away_from_the_site(raw: str) -> None:
    path = local_path(raw)
    assert path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable()


@pytest.mark.parametrize(
    ("forwarded", "proxies", "found"),
    [
        ("203.0.113.9", 0, "10.0.0.1"),
        ("203.0.113.9", 1, "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", 1, "203.0.113.9"),
        ("198.51.100.1, 203.0.113.9", 2, "198.51.100.1"),
        ("203.0.113.9", 2, "10.0.0.1"),
        ("nonsense", 1, "10.0.0.1"),
        ("", 1, "10.0.0.1"),
    ],
)
def test_only_entries_of_own_proxies_count(forwarded: str, proxies: int, found: str) -> None:
    assert client_address("10.0.0.1", forwarded, proxies=proxies) == found
