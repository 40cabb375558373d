"""Bodies of webhooks: JSON for programs, the forms that Slack and Teams read, and the text of mail."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from toban_domain.outcome import failure_text

GENERIC, SMTP = "generic", "smtp"
MAX_SUBJECT = 150
MAX_LINE = 500
_SAID = {
    "run.late": "was skipped because it was late",
    "job.late": "has not started in time",
    "job.long": "lasts longer than it should",
    "job.recovered": "succeeded again",
    "job.failed": "failed",
}


def body(form: str, kind: str, at: datetime, data: Mapping[str, Any]) -> bytes:
    """What is sent. `at` is when it happened. An unknown form, of a newer version, is sent as the generic one."""
    if form == SMTP:
        return f"{summary(kind, data)}\n\n{at:%Y-%m-%d %H:%M:%S %Z}\n".encode(errors="replace")
    return _encoded(_FORMS.get(form, _generic)(kind, at, data))


def subject(kind: str, data: Mapping[str, Any]) -> str:
    """Of mail: what the summary begins with, without anything that could end a header."""
    line = _headline(kind, data["run"]) if "run" in data else summary(kind, data).partition("\n")[0]
    return "[Toban] " + " ".join("".join(c if c.isprintable() else " " for c in line).split())[:MAX_SUBJECT]


def summary(kind: str, data: Mapping[str, Any]) -> str:
    """One or two lines for people, as plain text."""
    if "run" not in data:
        return _of_job(kind, data)
    run = data["run"]
    reason, error, last_line = (str(run.get(key) or "") for key in ("reason", "error", "last_line"))
    detail = failure_text(reason, error, last_line) if error else last_line
    return "\n".join([_headline(kind, run), *([detail[:MAX_LINE]] if detail else [])])


def _headline(kind: str, run: Mapping[str, Any]) -> str:
    said = _SAID.get(kind) or str(run.get("state", kind.partition(".")[2])).lower().replace("_", " ")
    facts = [f"{name} {run[key]}" for key, name in _FACTS if run.get(key) not in (None, "")]
    more = f" ({', '.join(facts)})" if facts else ""
    return f"Job {run.get('job', '?')}: run {run.get('id', '?')} {said}{more}"


_FACTS = (
    ("state", "state"),
    ("reason", "reason"),
    ("exit_code", "exit code"),
    ("attempt", "attempt"),
    ("schedule", "schedule"),
)


def _of_job(kind: str, data: Mapping[str, Any]) -> str:
    if kind != "job.missing":
        return f"Test of webhook {data.get('webhook', '')}: it arrives."
    job = data["job"]
    return (
        f"Job {job['name']} has not succeeded since {job['since']}; expected within {job['expected_within_seconds']} s."
    )


def _generic(kind: str, at: datetime, data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": kind, "timestamp": at.isoformat(), "data": data}


def _slack(kind: str, at: datetime, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Plain text in the block, so that nothing in it is a link or a mention; `text` is what a notification shows."""
    del at
    text = summary(kind, data)
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    block = {"type": "section", "text": {"type": "plain_text", "text": text[:3000], "emoji": False}}
    return {"text": escaped[:3000], "blocks": [block]}


def _teams(kind: str, at: datetime, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """An adaptive card. Text runs have no markup."""
    del at
    lines = summary(kind, data).split("\n")
    blocks = [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line}]} for line in lines]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    return {
        "type": "message",
        "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}],
    }


def _encoded(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


_FORMS: Mapping[str, Callable[[str, datetime, Mapping[str, Any]], Mapping[str, Any]]] = {
    GENERIC: _generic,
    "slack": _slack,
    "teams": _teams,
}
FORMS = (*_FORMS, SMTP)
