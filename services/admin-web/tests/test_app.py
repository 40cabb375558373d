"""Requests that the application rejects, and paths with unusual names and numbers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest

SESSION = "5e" * 32


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_a_page_takes_no_other_method(web: Any, method: str) -> None:
    response = getattr(web.client, method)("/runs/1")
    assert response.status_code == 405 and "takes no request of this kind" in response.get_data(as_text=True)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_other_host_names_are_rejected(web: Any, host: str) -> None:
    response = web.client.get("/", headers={"Host": host}, environ_overrides={"HTTP_HOST": host})
    assert response.status_code == 421
    assert web.cluster.reader.requests == []


def test_listed_host_names_are_served(new_web: Any) -> None:
    web = new_web(http_names=("Toban.Example",))
    web.client.set_cookie("__Host-toban-session", SESSION, domain="toban.example", secure=True)
    named = {"base_url": "https://toban.example:8080"}
    assert web.client.get("/", **named).status_code == 200
    assert web.client.get("/", headers={"Host": "other.example"}).status_code == 421


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/runs/9223372036854775807", 200),
        ("/runs/9223372036854775808", 404),
        (f"/runs/{'9' * 3000}", 404),
        (f"/runs/{'9' * 5000}/log/stream", 404),
        ("/runs/%D9%A1", 404),
        ("/runs/1/log/stream?after=1:9223372036854775807", 200),
        (f"/runs/1/log/stream?after=1:{'9' * 5000}", 200),
        ("/jobs/%00", 400),
        ("/jobs?cursor=%00", 400),
        ("/schedules/a%00b", 400),
        ("/runs?job=%00", 400),
    ],
)
def test_invalid_numbers_and_names(web: Any, path: str, status: int) -> None:
    web.cluster.write(sealed=True)
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(100))
    with web.get(path) as response:
        assert response.status_code == status
        if status == 200:
            assert response.get_data()


def test_a_last_event_id_of_five_thousand_digits_reads_from_the_start(web: Any) -> None:
    web.cluster.write(sealed=True)
    web.cluster.reader.responses["GetRun"] = web.run(1, "SUCCEEDED", finished_at=web.stamp(100))
    with web.get("/runs/1/log/stream", Last_Event_ID=f"{'9' * 5000}:1") as response:
        assert response.status_code == 200 and b"line 1" in response.get_data()


@pytest.mark.parametrize(
    "path", ["/%5Cevil.com", "//evil.com", "///evil.com", "/%5C%5Cevil.com", "/%2Fevil.com", "/a%22b"]
)
def test_links_of_a_page_stay_on_this_site(web: Any, path: str) -> None:
    response = web.client.get("/", environ_overrides={"PATH_INFO": unquote(path)})
    assert response.status_code == 404
    links = re.findall(r'href="([^"]*)"', response.get_data(as_text=True))
    assert len(links) > 6 and any("evil.com?lang=ja" in link or "b?lang=ja" in link for link in links)
    assert all(re.match(r"#|/(?![/\\])", link) for link in links), links
