"""The Django app `toban.django`: events on commit, commands that report progress, schedules in code, admin pages (docs/django.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toban.django.declarations import command_job

if TYPE_CHECKING:
    from toban.django.commands import TobanCommandMixin
    from toban.django.events import emit

__all__ = ["TobanCommandMixin", "command_job", "emit"]


def __getattr__(name: str) -> Any:
    # Django imports this module before the settings can be used.
    if name == "emit":
        from toban.django.events import emit

        return emit
    if name == "TobanCommandMixin":
        from toban.django.commands import TobanCommandMixin

        return TobanCommandMixin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
