"""How long tests may wait for PostgreSQL: long, so that a machine with other work fails none; production's bounds for tests about them.

The bounds are module constants that the code reads at each call. A process that a test starts keeps production's.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from toban_store import pool, sessions, tx

# A safety net: a test that waits for longer than this waits for what never comes.
_SECONDS = 60
_WIDE: tuple[tuple[ModuleType, str, Any], ...] = (
    (sessions, "FENCED_MS", _SECONDS * 1000),
    (sessions, "FENCED_MOST_MS", _SECONDS * 1000),
    (tx, "FENCED_STATEMENT_MS", _SECONDS * 1000),
    (pool, "ACQUIRE_SECONDS", float(_SECONDS)),
    (pool, "CONNECT_SECONDS", _SECONDS),
)
_WIDE_SESSION = {
    "statement_timeout": f"{_SECONDS}s",
    "lock_timeout": f"{_SECONDS}s",
    # A process that is delayed between two statements must not lose its transaction.
    "idle_in_transaction_session_timeout": f"{2 * _SECONDS}s",
}

_PRODUCTION = tuple((module, name, getattr(module, name)) for module, name, _ in _WIDE)
_PRODUCTION_SESSION = {name: pool.SESSION[name] for name in _WIDE_SESSION}


def widen() -> None:
    """For the whole session of tests."""
    for module, name, value in _WIDE:
        setattr(module, name, value)
    pool.SESSION.update(_WIDE_SESSION)


@pytest.fixture
def production_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Production's bounds for one test, whose subject they are. Ask for it before any pool: the pool takes them when it is opened."""
    for module, name, value in _PRODUCTION:
        monkeypatch.setattr(module, name, value)
    for name, value in _PRODUCTION_SESSION.items():
        monkeypatch.setitem(pool.SESSION, name, value)


@pytest.fixture(params=["behaviour", pytest.param("time", marks=pytest.mark.timing)])
def at_most(request: pytest.FixtureRequest) -> Callable[..., float]:
    """Makes two tests of one: `at_most(1.0)` is 1.0 in the one marked `timing`, and a safety net (`net`, 60 s) in the other.

    So what happens is tested on a machine with other work too, and how fast it happens where a test runs alone.
    """
    exact = request.param == "time"
    return lambda seconds, *, net=60.0: seconds if exact else net
