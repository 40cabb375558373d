"""For unit tests of programs that use Toban: a job and clients in memory (docs/sdk.md, "Testing your code")."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toban.testing.fake_async_client import FakeAsyncClient
    from toban.testing.fake_client import FakeClient
    from toban.testing.fake_job import FakeJob

__all__ = ["FakeAsyncClient", "FakeClient", "FakeJob"]

_MODULES = {"FakeAsyncClient": "fake_async_client", "FakeClient": "fake_client", "FakeJob": "fake_job"}


def __getattr__(name: str) -> Any:
    # FakeAsyncClient needs what AsyncClient needs.
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
