"""The form for schedules: what a form can hold comes back as it was, and what it cannot hold gets no form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_admin_web.decide.definition_text import example_document
from toban_admin_web.decide.schedule_form import FIELDS, form_of, has_details, kept_keys, manifest_of
from toban_domain.errors import TobanError
from toban_manifests.read import Document, read_manifests
from toban_schedule import Rule, problems

RULES: tuple[dict[str, Any], ...] = (
    {"interval_seconds": 90},
    {"every_n_minutes": 5},
    {"every_n_minutes": 120},
    {"every_n_minutes": 2880},
    {"hourly_at_minute": 0},
    {"daily_at": "03:00"},
    {"weekly_at": "mon-fri 03:00"},
    {"weekly_at": "sat-mon 3:15:30"},
    {"cron": "H H(0-5) * * MON#1"},
)
MORE: dict[str, Any] = {
    "timezone": "Europe/Berlin",
    "dst": {"gap": "skip", "fold": "both"},
    "start": "2026-12-01T00:00:00Z",
    "end": "2027-01-01T00:00:00+01:00",
    "enabled": False,
    "payload": {"day": "${{ slot.date }}", "n": 1.0, "line": "\u202e\n"},
    "catch_up": {"policy": "one", "max": 3},
    "on_failure": "remove",
    "scope": "account",
    "scope_id": "17",
}


def document(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "toban/v1",
        "kind": "Schedule",
        "metadata": {"name": "nightly", **metadata},
        "spec": {"job": "hello", **spec},
    }


def meaning(found: dict[str, Any]) -> tuple[Any, ...]:
    """Of a manifest: its rule compiled, since weekdays can be written in several ways, and all else as it is."""
    [manifest] = read_manifests([Document("x", found)], check_rule=problems)
    return Rule.of(manifest.spec.rule), {**manifest.spec.to_json(), "weekly_at": ""}


@given(
    st.sampled_from(RULES),
    st.sets(st.sampled_from(sorted(MORE))),
    st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])),
    st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.from_regex(r"[a-z]{1,5}", fullmatch=True)),
)
def test_what_a_form_holds_comes_back(rule: dict[str, Any], more: set[str], text: str, labels: dict[str, str]) -> None:
    whole = document({**rule, **{key: MORE[key] for key in more}}, description=text, labels=labels)
    fields = form_of(whole)
    assert fields is not None and set(fields) <= set(FIELDS)
    back = manifest_of(fields)
    assert meaning(back) == meaning(whole)
    assert form_of(back) == fields


def test_keys_without_a_field_are_kept() -> None:
    fields = form_of(
        document({"daily_at": "03:00", "scope": "account", "scope_id": "17", "odd": [1]}, labels={"a": "b"})
    )
    assert fields is not None and kept_keys(fields) == ("metadata.labels", "spec.scope", "spec.scope_id", "spec.odd")
    back = manifest_of({**fields, "kind": "cron", "cron": "0 3 * * *"})
    assert back["spec"] == {"job": "hello", "cron": "0 3 * * *", "scope": "account", "scope_id": "17", "odd": [1]}
    assert back["metadata"] == {"name": "nightly", "labels": {"a": "b"}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"daily_at": "03:00", "cron": "0 3 * * *"},
        {"daily_at": 180},
        {"daily_at": " 03:00"},
        {"cron": "0 3 * * *\u202e"},
        {"every_n_minutes": True},
        {"every_n_minutes": "5"},
        {"weekly_at": "someday 03:00"},
        {"daily_at": "03:00", "dst": {"gap": "shift", "more": 1}},
        {"daily_at": "03:00", "dst": "skip"},
        {"daily_at": "03:00", "catch_up": {"policy": "one", "more": 1}},
        {"daily_at": "03:00", "payload": []},
        {"daily_at": "03:00", "enabled": "no"},
        {"daily_at": "03:00", "timezone": None},
        {"daily_at": "03:00", "odd": {1, 2}},
    ],
)
def test_what_a_form_would_change_has_no_form(spec: dict[str, Any]) -> None:
    assert form_of(document(spec)) is None


def test_another_shape_has_no_form() -> None:
    whole = document({"daily_at": "03:00"})
    for odd in (
        {},
        {**whole, "more": 1},
        {**whole, "spec": []},
        {**whole, "metadata": None},
        {**whole, "apiVersion": "v2"},
    ):
        assert form_of(odd) is None


def test_the_example_has_a_form() -> None:
    fields = form_of(example_document("Schedule", "report"))
    assert fields is not None and (fields["kind"], fields["daily_at"], fields["rest"]) == ("daily", "03:00", "")
    assert not has_details(fields) and has_details({**fields, "gap": "skip"})


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ({"kind": "every", "every": "2", "unit": "h"}, "every_n_minutes", 120),
        ({"kind": "every", "every": "30", "unit": "s"}, "interval_seconds", 30),
        ({"kind": "every", "every": "1.5", "unit": "h"}, "every_n_minutes", "1.5"),
        ({"kind": "every", "every": "", "unit": "odd"}, "every_n_minutes", ""),
        ({"kind": "hourly", "minute": "07"}, "hourly_at_minute", 7),
        ({"kind": "weekly", "days": "sun,mon,tue,sat,fri"}, "weekly_at", "mon,tue,fri-sun 03:00"),
        ({"kind": "weekly", "days": ""}, "weekly_at", " 03:00"),
        ({"kind": "daily", "daily_at": " 3h "}, "daily_at", "3h"),
        ({"kind": "weekly", "days": "odd"}, "weekly_at", " 03:00"),
    ],
)
def test_fields_are_written_as_they_are(change: dict[str, str], key: str, value: Any) -> None:
    fields = form_of(example_document("Schedule"))
    assert fields is not None
    assert manifest_of({**fields, **change})["spec"] == {"job": "hello", key: value}


def test_a_payload_that_is_no_json_is_refused() -> None:
    with pytest.raises(TobanError, match=r"spec\.payload: is not JSON: .*double quotes"):
        manifest_of({"payload": "{day: 1}"})


def test_no_field_at_all_is_a_manifest_with_mistakes() -> None:
    for rest in ("", "[]", "{", '{"spec": 1}'):
        assert manifest_of({"rest": rest})["spec"] == {"job": "", "enabled": False}
