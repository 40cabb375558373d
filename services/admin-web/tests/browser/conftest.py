"""A browser, the site of the test at an address, and a tab of a person who has signed in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from toban_testing.browser import Page, browsing
from toban_testing.http_server import serving

SESSION = "5e" * 32


@pytest.fixture
def address(web: Any) -> Iterator[str]:
    """Where the site of the test is served."""
    with serving(web.worker.app, web.worker.context.stopping.set) as url:
        yield url


@pytest.fixture(scope="module")
def new_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Page]]:
    """Opens tabs of one browser."""
    with browsing(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(new_page: Callable[[], Page], address: str) -> Page:
    """A tab of a person who has signed in."""
    opened = new_page()
    opened.set_cookie(address, f"toban-session-{urlsplit(address).port}", SESSION)
    return opened
