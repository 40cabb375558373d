"""Templates: what is inserted, what is refused, and that texts stay texts."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec, StepSpec
from toban_domain.schedule import RuleSpec, ScheduleSpec
from toban_domain.template import SCHEDULE, STEP, Context, expand, expand_text, has_template, problem, slot_values

PAYLOAD = {
    "user": {"id": 7, "name": "Ada L"},
    "tags": ["a", {"b": None}],
    "on": True,
    "empty": "",
    "raw": "${{ slot }}",
}
CONTEXT = Context(
    plain={"slot": "2026-11-21T02:00:00+00:00", "run.id": 12},
    trees={"payload": PAYLOAD, "previous.result": {"cursor": "x9"}},
)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("plain", "plain"),
        ("${ {", "${ {"),
        ("{{.Names}} $HOME ${X}", "{{.Names}} $HOME ${X}"),
        ("${{ payload.user.id }}", "7"),
        ("a ${{payload.user.name}} b", "a Ada L b"),
        ("${{ payload.tags.1.b }}|${{ payload.on }}|${{ payload.empty }}", "|true|"),
        ("${{ payload.user }}", '{"id":7,"name":"Ada L"}'),
        ("${{ run.id }}@${{ slot }}", "12@2026-11-21T02:00:00+00:00"),
        ("${{ previous.result.cursor ?? 0 }}", "x9"),
        ("${{ previous.result.none ?? 0 }}", "0"),
        ('${{ payload.none ?? "a b" }}', "a b"),
        ("${{ payload.tags.1.b ?? 3 }}", "3"),
        ("$${{ payload.user.id }} ${{ payload.user.id }}", "${{ payload.user.id }} 7"),
        # What is inserted is not looked at again.
        ("${{ payload.raw }}", "${{ slot }}"),
    ],
)
def test_texts(text: str, made: str) -> None:
    assert expand_text(text, CONTEXT) == made
    assert has_template(text) is (made != text or "${{" in text)


def test_a_tree_keeps_its_elements_and_types() -> None:
    tree = {
        "id": "${{ payload.user.id }}",
        "all": ["${{ payload.tags }}", "n ${{ payload.user.id }}", 5],
        "k": {"on": "${{ payload.on }}"},
    }
    assert expand(tree, CONTEXT) == {"id": 7, "all": [PAYLOAD["tags"], "n 7", 5], "k": {"on": True}}
    assert expand("$${{ x", CONTEXT) == "${{ x"


@given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_whatever_the_value_is_one_text_stays_one(value: Any) -> None:
    context = Context(trees={"payload": {"x": value}})
    assert expand({"x": "${{ payload.x }}"}, context) == {"x": value}
    try:
        assert isinstance(expand_text("-${{ payload.x }}-", context), str)
    except TobanError as error:
        assert "NUL" in error.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${{ payload.gone }}", 'there is no payload.gone; give it, or write a default: ${{ payload.gone ?? "" }}'),
        ("${{ payload.user.id.deeper }}", "there is no payload.user.id.deeper"),
        ("${{ elsewhere }}", "there is no elsewhere"),
        ("${{ payload.long }}", "has 70000 characters, the limit is 65536"),
        ("a${{ payload.nul }}", "has a NUL character"),
    ],
)
def test_a_value_that_cannot_be_inserted(text: str, message: str) -> None:
    context = Context(trees={"payload": {**PAYLOAD, "long": "x" * 70_000, "nul": "\0"}})
    with pytest.raises(TobanError) as refused:
        expand_text(text, context, "steps[0].argv[1]")
    assert message in refused.value.message
    assert refused.value.message.startswith("steps[0].argv[1]: ")
    assert refused.value.code is ErrorCode.PAYLOAD_INVALID


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${{ payload.a }} ${{ slot.date }} ${{ previous.result }}", ""),
        ('${{ payload.a ?? {"b": [1]} }}', ""),
        ("$${{ whatever }}", ""),
        ("${{ payload.a", "has ${{ without }}"),
        ("${{ payloads.a }}", "refers to 'payloads.a', which there is not"),
        ("${{ payload. }}", "refers to 'payload.', which there is not"),
        ("${{ }}", "refers to '', which there is not"),
        ("${{ payload.a ?? b }}", "'b' behind ?? is not JSON"),
        ("${{ run.id }}" * 101, "has 101 references"),
    ],
)
def test_what_is_known_to_be_wrong(text: str, message: str) -> None:
    found, remedy = problem(text, STEP)
    assert found == message
    assert bool(remedy) is bool(message)


def test_a_schedule_refers_to_its_slot_only() -> None:
    assert problem("${{ payload.a }}", SCHEDULE)[0] != ""
    spec = ScheduleSpec(
        name="n", job="j", rule=RuleSpec(interval_seconds=5), payload={"day": "${{ slot.date }}", "x": 1}
    )
    berlin = datetime(2026, 11, 21, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert spec.has_template
    assert spec.payload_at(berlin) == {"day": "2026-11-20", "x": 1}
    assert slot_values(berlin.astimezone(UTC))["slot"] == "2026-11-20T23:30:00+00:00"
    assert slot_values(None) == {"slot": "", "slot.date": ""}


def test_a_definition_knows_once_whether_it_has_templates() -> None:
    plain = JobSpec(name="j", steps=(StepSpec(id="a", body={"argv": ["x", "{{.Names}}"]}),), env={"A": "$B"})
    assert not plain.templated
    assert JobSpec.from_json({**plain.to_json(), "env": {"A": "${{ slot }}"}}).templated
    assert "templated" not in plain.to_json()
