"""The pages that every page leads to, in groups. A new page is one line here, and its text nav.NAME."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """A link to the view `endpoint`. `letter` opens it after g; `roles` are those that see it, all when empty."""

    endpoint: str
    text: str
    icon: str
    letter: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Links below one title, whose text is `title`."""

    title: str
    links: tuple[Link, ...]


GROUPS = (
    Group(
        "nav.group.work",
        (
            Link("dashboard.show", "nav.dashboard", "layout-dashboard", "d"),
            Link("runs.listed", "nav.runs", "circle-play", "r"),
            Link("jobs.listed", "nav.jobs", "box", "j"),
            Link("schedules.listed", "nav.schedules", "calendar-clock", "s"),
            Link("events.listed", "nav.events", "zap", "v"),
            Link("events.triggers", "nav.triggers", "workflow", "i"),
        ),
    ),
    Group(
        "nav.group.capacity",
        (
            Link("executors.show", "nav.executors", "cpu", "e"),
            Link("limits.listed", "nav.limits", "gauge", "l"),
            Link("load.show", "load.title", "grid-3x3"),
        ),
    ),
    Group(
        "nav.group.administration",
        (
            Link("users.listed", "nav.users", "user-round", "u", ("admin",)),
            Link("groups.listed", "nav.groups", "users-round", "p", ("admin",)),
            Link("rules.listed", "nav.rules", "shield-check", roles=("admin",)),
            Link("secrets.listed", "nav.secrets", "lock-keyhole", "k", ("editor", "admin")),
            Link("webhooks.listed", "nav.webhooks", "webhook", "w"),
            Link("incoming.listed", "nav.incoming", "inbox", "h"),
            Link("settings.listed", "nav.settings", "sliders-horizontal", "t"),
            Link("audit.listed", "nav.audit", "scroll-text", "a", ("admin",)),
            Link("archive.show", "nav.archive", "archive"),
            Link("cluster.show", "nav.cluster", "server", "c"),
            Link("api_docs.show", "api.title", "code"),
        ),
    ),
)


def groups_for(role: str) -> tuple[Group, ...]:
    """The groups with the links that a person of this role sees."""
    seen = (
        Group(one.title, tuple(link for link in one.links if not link.roles or role in link.roles)) for one in GROUPS
    )
    return tuple(group for group in seen if group.links)


def is_here(path: str, target: str) -> bool:
    """Whether the page at `path` is the one at `target`, or below it."""
    return path == target or (target != "/" and path.startswith(f"{target}/"))
