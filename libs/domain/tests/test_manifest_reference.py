"""The description of each key is there, and describes nothing that no reader asks for."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from toban_domain.manifest import Document, find_problems
from toban_domain.manifest.fields import Fields
from toban_domain.manifest.reference import KINDS, METADATA, Field

# Documents with every mapping that a reader goes into.
FULL: dict[str, dict[str, Any]] = {
    "Job": {"steps": [{"argv": ["true"]}], "retry": {"backoff_seconds": {"initial": 1}}},
    "Schedule": {"interval_seconds": 5, "job": "x", "catch_up": {"policy": "all"}},
    "EventTrigger": {"event_type": "a.b", "job": "x"},
}


def asked(kind: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The keys that the readers of a kind ask for, by the path of their mapping."""
    found: dict[str, set[str]] = defaultdict(set)
    plain = Fields.done

    def done(self: Fields, **meant: str) -> None:
        found[self.path.replace("[0]", "")] |= set(self._known)
        plain(self, **meant)

    monkeypatch.setattr(Fields, "done", done)
    body = {"apiVersion": "toban/v1", "kind": kind, "metadata": {"name": "x"}, "spec": FULL[kind]}
    manifests, problems = find_problems([Document("a", body)], check_rule=lambda rule: [])
    assert problems == []
    assert len(manifests) == 1
    return found


def described(fields: tuple[Field, ...], path: str) -> dict[str, set[str]]:
    found = {path: {one.key for one in fields}}
    for one in fields:
        if one.fields:
            found |= described(one.fields, f"{path}.{one.key}")
    return found


def test_every_kind_is_described() -> None:
    assert set(KINDS) == set(FULL)
    body = {"apiVersion": "toban/v1", "kind": "Nothing", "metadata": {"name": "x"}, "spec": {}}
    _, [problem] = find_problems([Document("a", body)], check_rule=lambda rule: [])
    assert problem.hint == f"use {' or '.join(KINDS)}"


@pytest.mark.parametrize("kind", FULL)
def test_every_key_is_described_and_no_other(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {**described(METADATA, "metadata"), **described(KINDS[kind].fields, "spec")}
    found = asked(kind, monkeypatch)
    assert found.pop("") == {"apiVersion", "kind", "metadata", "spec"}
    assert found == wanted


@pytest.mark.parametrize("kind", FULL)
def test_every_description_is_complete(kind: str) -> None:
    def check(fields: tuple[Field, ...]) -> None:
        for one in fields:
            assert one.meaning and one.type, one.key
            assert one.example or one.fields, f"{one.key} has no example"
            assert one.default or one.unset or one.fields, f"{one.key} does not say what leaving it out means"
            assert "\n" not in one.meaning
            check(one.fields)

    check(KINDS[kind].fields)
    check(METADATA)
