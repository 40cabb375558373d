"""Host names that a request may carry."""

from __future__ import annotations

import pytest

from toban_admin_web.decide.allowed_hosts import host_name, is_allowed


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8080", "127.0.0.1"),
        ("LocalHost", "localhost"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("a.example", "a.example"),
        ("[::1]x", ""),
        ("a:b", ""),
        ("a:1:2", ""),
        ("", ""),
    ],
)
def test_host_name_of_a_header(header: str, name: str) -> None:
    assert host_name(header) == name


def test_loopback_and_listed_hosts_are_allowed() -> None:
    assert all(is_allowed(one, ()) for one in ("localhost", "127.0.0.1:1", "127.9.9.9", "[::1]:5"))
    assert not any(is_allowed(one, ()) for one in ("10.0.0.1", "localhost.x", "127.0.0.1.x", "0.0.0.0", "2130706433"))
    assert is_allowed("A.example:9", ["a.example"]) and not is_allowed("b.example", ["a.example"])
