"""Requests of http steps: URLs, headers, bodies, statuses, redirects."""

from __future__ import annotations

from typing import Any

import pytest

from toban_domain.http_call import Call, CallError, Request, parse_url, read_call, redirected, status_range


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("https://a.example", "a.example", 443, "/"),
        ("http://A.Example./x?q=1#part", "a.example", 80, "/x?q=1"),
        ("http://[::1]:8080/a", "::1", 8080, "/a"),
        ("https://ä.example/ü", "xn--4ca.example", 443, "/%C3%BC"),
        ("https://a.example/%2e%2e/{x}", "a.example", 443, "/%2e%2e/%7Bx%7D"),
        ("https://a.example?q=[1]", "a.example", 443, "/?q=[1]"),
    ],
)
def test_urls(url: str, host: str, port: int, path: str) -> None:
    target = parse_url(url)
    assert (target.host, target.port, target.path) == (host, port, path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://a.example", "must begin with http"),
        ("/path", "must begin with http"),
        ("https://", "must begin with http"),
        ("https://u:p@a.example", "has a user or password"),
        ("https://a.example\\@b.example/", "blanks, control characters or backslashes"),
        ("https://a.example/a b", "blanks"),
        ("https://a.example/\r\nX: 1", "blanks"),
        ("https://a.example:99999/", "not valid"),
        ("https://a.example:0/", "port 0"),
        ("https://a_b%41.example/", "is not a host"),
        ("https://${{x}}.example/", "is not a host"),
        ("https://[::1%25eth0]/", "not"),
        ("https://[::1/", "not valid"),
    ],
)
def test_urls_that_are_refused(url: str, words: str) -> None:
    with pytest.raises(CallError, match=r"URL|host") as caught:
        parse_url(url)
    assert words in str(caught.value)
    assert "p@" not in str(caught.value)


def test_a_whole_call() -> None:
    spec = {
        "url": "https://a.example/x",
        "method": "PUT",
        "headers": {"user-agent": "mine"},
        "body": {"a": ["é"]},
        "expected_status": [204, "300-399"],
        "retry": {"attempts": 3, "backoff_seconds": [1, 5]},
    }
    call = read_call(spec, {"User-Agent": "toban", "Toban-Fence": "1"})
    assert call.request.body == b'{"a":["\\u00e9"]}'
    assert call.request.headers == {
        "user-agent": "mine",
        "Toban-Fence": "1",
        "Content-Type": "application/json",
    }
    assert [call.expects(status) for status in (200, 204, 302, 400)] == [False, True, True, False]
    assert [call.wait(tried) for tried in (1, 2, 3)] == [1, 5, 5]


def test_a_text_is_sent_as_it_is() -> None:
    call = read_call({"url": "http://a.example", "method": "POST", "body": "a=1"}, {})
    assert call == Call(Request("POST", call.request.target, {"Content-Type": "text/plain; charset=utf-8"}, b"a=1"))


@pytest.mark.parametrize(
    "spec",
    [{"headers": {"X": "a\r\nHost: b"}}, {"headers": {"X": "€"}}, {"headers": {"X Y": "a"}}, {"method": "CONNECT"}],
)
def test_what_an_expanded_template_may_not_hold(spec: dict[str, Any]) -> None:
    with pytest.raises(CallError):
        read_call({"url": "http://a.example", **spec}, {})


@pytest.mark.parametrize("value", [99, 600, "200-", "300-200", "a"])
def test_no_status(value: int | str) -> None:
    with pytest.raises(ValueError, match=r"status|int"):
        status_range(value)


HEADERS = {"Authorization": "secret", "X-Key": "secret", "Content-Type": "text/plain", "Accept": "a/b"}


def request(method: str, body: bytes | None = None) -> Request:
    return Request(method, parse_url("https://a.example/x"), HEADERS, body)


def test_a_redirect_within_the_origin_keeps_everything() -> None:
    target = parse_url("https://a.example/y")
    assert redirected(request("POST", b"x"), 307, target) == Request("POST", target, HEADERS, b"x")


@pytest.mark.parametrize(("method", "status"), [("POST", 302), ("POST", 301), ("PUT", 303)])
def test_a_redirect_that_makes_it_a_get(method: str, status: int) -> None:
    made = redirected(request(method, b"x"), status, parse_url("https://a.example/y"))
    assert (made.method, made.body, "Content-Type" in made.headers) == ("GET", None, False)


@pytest.mark.parametrize("url", ["https://b.example/", "https://a.example:8443/"])
def test_another_origin_gets_no_secret(url: str) -> None:
    made = redirected(request("GET"), 302, parse_url(url))
    assert made.headers == {"Content-Type": "text/plain", "Accept": "a/b"}
    with pytest.raises(CallError, match="body to another origin"):
        redirected(request("POST", b"x"), 308, parse_url(url))


def test_no_redirect_from_https_to_http() -> None:
    with pytest.raises(CallError, match=r"from https to http://a\.example/y"):
        redirected(request("GET"), 302, parse_url("http://a.example/y?secret"))
