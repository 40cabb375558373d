"""The check of the key file of secrets on the coordinator that answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from toban_domain.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    """The keys as they were read last; `path` "" = no file is configured. `problem` is why there are none, `loose` why others may read the file."""

    path: str = ""
    ids: tuple[str, ...] = ()
    problem: str = ""
    loose: str = ""


def secret_keys(keys: KeyFile, secrets: Mapping[str, int]) -> list[Finding]:
    """`secrets`: how many each key encrypts. Without a key file nothing is wrong as long as there are no secrets."""
    stored = sum(secrets.values())
    value = f"{_count(len(keys.ids), 'key')}, {_count(stored, 'secret')}"
    finding = partial(Finding, name="secrets-key", subject="key file of secrets", value=value)
    if keys.problem:
        message, _, remedy = keys.problem.partition("; ")
        if not stored and not keys.path:
            return [finding()]
        return [finding(status="error" if stored else "warning", message=message, remedy=remedy)]
    found = []
    if keys.loose:
        message, _, remedy = keys.loose.partition(": ")
        found.append(finding(status="error", message=f"others may read {keys.path}: {message}", remedy=remedy))
    if lost := sum(count for key, count in secrets.items() if key not in keys.ids):
        message = f"{lost} of {stored} secrets have a key that is not in the file; runs that need them fail"
        found.append(finding(status="error", message=message, remedy="add the key, or set these secrets again"))
    elif old := sum(count for key, count in secrets.items() if key != keys.ids[0]):
        message = f"{old} of {stored} secrets are not encrypted with the first key of the file"
        found.append(finding(status="warning", message=message, remedy="run `toban secret rotate`"))
    return found or [finding()]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
