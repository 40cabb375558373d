"""Forms of webhooks and hooks: lists and pairs in fields of several lines, and what each state offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from toban_domain.run_end import RUN_END_STATES

FORMS = ("generic", "slack", "teams", "smtp")
KINDS = ("standard", "github", "cloudevents", "cloudevents-token")
DELIVERY_STATES = ("pending", "delivered", "failed")
NO_STATES = "NONE"
"""In place of states: the webhook gets only what jobs ask for."""
WEBHOOK_ACTIONS = ("test", "redeliver", "disable", "enable", "secret", "remove")
HOOK_ACTIONS = ("rotate", "drop", "disable", "enable", "remove")


def lines_of(text: str) -> list[str]:
    """The lines of a field that are not empty, each once."""
    return list(dict.fromkeys(one for line in text.splitlines() if (one := line.strip())))


def pairs_of(text: str, *, alone: bool = False) -> dict[str, str]:
    """`key=value` of each line; with `alone` a key stands for itself. Raises ValueError for a line that is none, or a key that is there twice."""
    found: dict[str, str] = {}
    for line in lines_of(text):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not key or key in found or not (value if equals else alone):
            raise ValueError(line)
        found[key] = value or key
    return found


def pairs_text(pairs: Mapping[str, str], *, alone: bool = False) -> str:
    """The inverse of pairs_of with the same `alone`."""
    return "\n".join(key if alone and key == value else f"{key}={value}" for key, value in sorted(pairs.items()))


def filter_of(states: Iterable[str], jobs: str, labels: str) -> dict[str, object]:
    """The filter of a webhook from its form. Raises ValueError."""
    chosen = [state for state in RUN_END_STATES if state in set(states)]
    return {"states": chosen or [NO_STATES], "jobs": lines_of(jobs), "labels": pairs_of(labels)}


def event_types(event_type: str, events: Mapping[str, str]) -> list[str]:
    """The types of the events that a hook makes."""
    return [event_type] if event_type else sorted(set(events.values()))


def webhook_actions(*, enabled: bool, form: str) -> Sequence[str]:
    """Those of WEBHOOK_ACTIONS that make sense now: only signed messages have a secret of their own."""
    left_out = {"enable" if enabled else "disable", *(() if form == FORMS[0] else ("secret",))}
    return [one for one in WEBHOOK_ACTIONS if one not in left_out]


def hook_actions(*, enabled: bool, secrets: int) -> Sequence[str]:
    """Those of HOOK_ACTIONS that make sense now: a secret is dropped while another one is valid."""
    left_out = {"enable" if enabled else "disable", *(() if secrets > 1 else ("drop",))}
    return [one for one in HOOK_ACTIONS if one not in left_out]
