"""What readers see of values that `logs.redact` names, and what becomes of a mask that is sent back."""

from __future__ import annotations

import json

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.redacted import (
    MASK,
    masked,
    masked_definition,
    masked_definition_text,
    masked_payload_text,
    masked_text,
    redact_names,
    unmasked,
)

NAMES = ("password", "API_KEY")
PAYLOAD = {
    "password": "s3cret",
    "db": [{"user": "ann", "password": {"now": "a", "old": [1]}}],
    "API_KEY": 17,
    "to": "x",
}
SHOWN = {"password": MASK, "db": [{"user": "ann", "password": MASK}], "API_KEY": MASK, "to": "x"}


def test_named_keys_are_masked_at_any_depth_and_of_any_type() -> None:
    assert masked(PAYLOAD, NAMES) == SHOWN
    assert json.loads(masked_text(json.dumps(PAYLOAD), NAMES)) == SHOWN


@pytest.mark.parametrize("nothing", [None, "", [], {}])
def test_a_value_that_is_not_set_is_shown(nothing: object) -> None:
    assert masked({"password": nothing}, NAMES) == {"password": nothing}


@pytest.mark.parametrize("value", [False, 0])
def test_numbers_and_switches_are_masked(value: object) -> None:
    assert masked({"password": value}, NAMES) == {"password": MASK}


def test_a_text_without_the_names_stays_as_it_is() -> None:
    assert masked_text('{"a":  1}', NAMES) == '{"a":  1}'
    assert masked_text('{"a":  1}', ()) == '{"a":  1}'


@pytest.mark.parametrize("text", ['{"password": 1e999}', '{"password": ' + "[" * 100_000, '{"password"'])
def test_a_text_that_cannot_be_masked_is_not_shown(text: str) -> None:
    assert masked_text(text, NAMES) == ("{}" if "1e999" not in text else json.dumps({"password": MASK}))


def test_a_number_that_json_does_not_have_hides_the_text() -> None:
    assert masked_text('{"password": "x", "size": 1e999}', NAMES) == "{}"


@pytest.mark.parametrize("name", ['quo"ted', "umläut", "back\\slash", "line\nbreak", "当番"])
def test_odd_names_are_found_in_a_text(name: str) -> None:
    assert json.loads(masked_text(json.dumps({name: "s3cret"}, ensure_ascii=False), [name])) == {name: MASK}


def test_a_definition_hides_env_and_default_payload() -> None:
    spec = {
        "env": {"API_KEY": "k", "LANG": "C"},
        "default_payload": PAYLOAD,
        "logs": {"redact": list(NAMES)},
        "name": "j",
    }
    shown = {**spec, "env": {"API_KEY": MASK, "LANG": "C"}, "default_payload": SHOWN}
    assert masked_definition(spec) == shown
    assert json.loads(masked_definition_text(json.dumps(spec))) == shown
    assert masked_definition({"env": {"A": "x"}}, ["A"]) == {"env": {"A": MASK}}
    assert masked_definition_text('{"env":  {}}') == '{"env":  {}}'


def test_a_schedule_hides_its_payload_alone() -> None:
    spec = {"payload": {"password": "x"}, "description": "password"}
    assert json.loads(masked_payload_text(json.dumps(spec), NAMES)) == {**spec, "payload": {"password": MASK}}
    assert masked_payload_text("{}", NAMES) == "{}"


@pytest.mark.parametrize("spec", [None, [], {}, {"logs": 1}, {"logs": {"redact": "x"}}, {"logs": {"redact": [1]}}])
def test_an_unreadable_definition_hides_nothing_by_name(spec: object) -> None:
    assert redact_names(spec) == []


def test_what_was_shown_comes_back_as_it_is_stored() -> None:
    assert unmasked(masked(PAYLOAD, NAMES), PAYLOAD, NAMES, NAMES, "payload") == PAYLOAD


def test_new_values_and_other_keys_are_taken_as_given() -> None:
    given = {"password": "new", "to": MASK, "db": [MASK]}
    assert unmasked(given, PAYLOAD, NAMES, NAMES, "payload") == given


@pytest.mark.parametrize(
    ("given", "stored", "names", "hidden", "path"),
    [
        ({"password": MASK}, {}, NAMES, NAMES, "payload.password"),
        ({"password": MASK}, None, NAMES, (), "payload.password"),
        ({"password": MASK}, {"password": ""}, NAMES, NAMES, "payload.password"),
        ({"password": MASK}, PAYLOAD, (), NAMES, "payload.password"),
        ({"password": MASK}, PAYLOAD, NAMES, (), "payload.password"),
        ({"in": {"password": MASK}}, {"in": 1}, NAMES, NAMES, "payload.in.password"),
        # Another user's password would be kept for this one.
        ({"db": [{"user": "bob", "password": MASK}]}, PAYLOAD, NAMES, NAMES, "payload.db[0].password"),
        ({"db": [{}, {"user": "ann", "password": MASK}]}, PAYLOAD, NAMES, NAMES, "payload.db[1].password"),
    ],
)
def test_a_mask_for_no_stored_value_is_refused(
    given: object, stored: object, names: tuple[str, ...], hidden: tuple[str, ...], path: str
) -> None:
    with pytest.raises(TobanError, match=r"write the value") as refused:
        unmasked(given, stored, names, hidden, "payload")
    assert refused.value.code is ErrorCode.PAYLOAD_INVALID
    assert refused.value.detail["path"] == path
    assert "s3cret" not in refused.value.message
