"""The environment of a job, built from nothing: no variable of the executor itself gets through."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The programs of steps import this module, and are to start fast.
    from toban_executor.decide.models import StartOrder

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_OWN = ("HOME", "LANG", "TRACEPARENT")
_LOCAL = ("TOBAN_CGROUP", "TOBAN_SOCKET", "TOBAN_PAYLOAD_FILE", "TOBAN_LEASE_FD", "TOBAN_INCARNATION")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def job_environment(order: StartOrder, *, incarnation: str, home: str, now: datetime) -> dict[str, str]:
    """Base variables, then the definition's, then the payload's scalars, then Toban's own, which nothing may replace.

    TOBAN_DEADLINE is when the attempt's timeout ends it (ISO, UTC; empty without one). The guard adds TOBAN_PAYLOAD_FILE
    and TOBAN_LEASE_FD.
    """
    deadline = (now + timedelta(seconds=order.timeout_seconds)).isoformat() if order.timeout_seconds else ""
    env = {"PATH": DEFAULT_PATH, "HOME": home, "LANG": "C.UTF-8", **order.env, **parameters(order.payload_json)}
    env |= {
        "TOBAN_FENCE": str(order.key.token),
        "TOBAN_RUN_ID": str(order.key.run_id),
        "TOBAN_ATTEMPT": str(order.attempt),
        "TOBAN_SLOT": order.slot,
        "TOBAN_DEADLINE": deadline,
        "TOBAN_INCARNATION": incarnation,
    }
    if order.traceparent:
        env["TRACEPARENT"] = order.traceparent
    return env


def own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """For a program of the executor itself: without the variables of the definition, some of which change what a program does."""
    return {name: value for name, value in env.items() if name in _OWN or name.startswith("TOBAN_")}


def portable_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Of a program of the executor itself, for what it starts elsewhere: neither paths nor descriptors of the executor."""
    return {
        name: value
        for name, value in env.items()
        if name == "TRACEPARENT" or (name.startswith("TOBAN_") and name not in _LOCAL)
    }


def parameters(payload_json: str) -> dict[str, str]:
    """TOBAN_PARAM_<NAME> for each top-level string, number or boolean of the payload whose name can be a variable."""
    if payload_json in ("", "{}"):
        return {}
    try:
        payload = json.loads(payload_json)
    except ValueError:
        return {}
    if not isinstance(payload, Mapping):
        return {}
    found = {}
    for name, value in payload.items():
        if isinstance(value, str | int | float | bool) and _NAME.match(name):
            text = value if isinstance(value, str) else json.dumps(value)
            if "\0" not in text:
                found[f"TOBAN_PARAM_{name.upper()}"] = text
    return found
