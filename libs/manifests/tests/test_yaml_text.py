"""YAML of manifests: what is small and stands for much, and values that are not of the type of their tag, are refused with their place."""

from __future__ import annotations

import pytest
import yaml

from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.yaml_text import MAX_BYTES, MAX_DEPTH, dump_yaml, parse_yaml


def refused(text: str) -> str:
    """The message about a text that is refused."""
    with pytest.raises(TobanError) as caught:
        parse_yaml("job.yaml", text.encode())
    assert caught.value.code is ErrorCode.MANIFEST_INVALID
    return caught.value.message


def test_a_long_text_under_aliases_is_refused() -> None:
    text = f"a: &a {'x' * 30_000}\nb: &b [{', '.join(['*a'] * 70)}]\nc: [{', '.join(['*b'] * 70)}]\n"
    assert len(text) < 31_000
    assert f"job.yaml:1:1: the document has more than {MAX_BYTES} characters once its aliases" in refused(text)
    [body] = parse_yaml("job.yaml", f"a: &a {'x' * 30_000}\nb: [*a, *a]\n".encode())
    assert isinstance(body, dict) and body["b"] == ["x" * 30_000] * 2


def test_a_large_text_without_aliases_is_fine() -> None:
    text = "a: " + "x" * (MAX_BYTES - 3)
    assert parse_yaml("job.yaml", text.encode()) == [{"a": "x" * (MAX_BYTES - 3)}]
    assert "is larger than" in refused(text + "x")


def test_deep_values_are_refused_with_and_without_aliases() -> None:
    assert len(parse_yaml("job.yaml", ("[" * MAX_DEPTH + "]" * MAX_DEPTH).encode())) == 1
    for levels in (MAX_DEPTH + 1, 50_000):
        assert refused("[" * levels + "]" * levels).startswith("job.yaml:1:")
        assert f"more than {MAX_DEPTH} levels" in refused("[" * levels + "]" * levels)
    aliases = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, MAX_DEPTH))
    assert f"more than {MAX_DEPTH} levels once its aliases" in refused(aliases)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("!!timestamp x", "timestamp"),
        ("!!timestamp 2026-13-41", "timestamp"),
        ("!!int ''", "int"),
        ("!!int x", "int"),
        ("!!float ''", "float"),
        ("!!bool x", "bool"),
        ("!!bool yes", "bool"),
        ("!!int 0755", "int"),
    ],
)
def test_a_value_of_another_type_than_its_tag_is_refused_with_its_place(value: str, kind: str) -> None:
    assert f"job.yaml:2:4: the value is not of the type {kind};" in refused(f"a: 1\nb: {value}\n")
    assert f"is not of the type {kind};" in refused(f"? {value}\n: 1\n")


@pytest.mark.parametrize("escape", ["FFFFFFFF", "7FFFFFFF", "00110000"])
def test_an_escape_that_is_no_character_is_refused(escape: str) -> None:
    assert refused(f'a: "\\U{escape}"\n').startswith("job.yaml: is not YAML in UTF-8 (")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("a: {{x}}", 5),
        ("a: {b: {{x}}}", 9),
        ("? {x: y}\n: 1", 3),
        ("? [a]\n: 1", 3),
        ("payload: {? [a] : yes}", 13),
        ("<<: {[a]: 1}", 6),
    ],
)
def test_a_key_that_is_a_mapping_or_a_list_is_refused_with_its_place(text: str, column: int) -> None:
    found = refused(f"name: x\n{text}\n")
    assert found.startswith(f"job.yaml:2:{column}: the key is a mapping or a list; a text that begins with {{{{, ")


CORE = [
    ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None),
    ("0", 0), ("-12", -12), ("+3", 3), ("0o17", 15), ("0x1F", 31), ("1.5", 1.5), ("-.5e3", -500.0), ("1e3", 1000.0), (".inf", float("inf")),
]  # fmt: skip
TEXTS = (
    "yes No on OFF y n 0755 -012 1_000 0b11 12:30:00 190:20:30 1.2.3 2026-01-01 2026-01-01T00:00:00Z = 0x 1e .".split()  # noqa: SIM905 (a list of words)
)


@pytest.mark.parametrize(("text", "value"), [*CORE, *((text, text) for text in TEXTS)])
def test_a_plain_value_is_what_the_core_schema_of_yaml_1_2_says(text: str, value: object) -> None:
    [body] = parse_yaml("job.yaml", f"a: {text}\n".encode())
    assert isinstance(body, dict) and (type(body["a"]), body["a"]) == (type(value), value)


def test_keys_are_text_as_they_were_typed() -> None:
    [body] = parse_yaml("job.yaml", b"{on: 1, yes: 2, 404: 3, true: 4, null: 5, 012: 6, <<: {1.50: 7}}")
    assert body == {"on": 1, "yes": 2, "404": 3, "true": 4, "null": 5, "012": 6, "1.50": 7}
    assert "the key '1' is given twice" in refused("{1: a, '1': b}")


def test_a_value_that_yaml_1_1_read_as_a_boolean_is_a_warning_in_a_payload() -> None:
    lines: list[str] = []
    text = "spec:\n  argv: [yes]\n  default_payload:\n    a: {b: [No, 'no', \"on\", nowhere, false]}\n    on: x\n"
    parse_yaml("job.yaml", text.encode(), lines.append)
    assert lines == [
        "job.yaml:4:13: No is text, and not the boolean false; write false, or put 'No' into quotes",
    ]
    parse_yaml("-", b"a: &a {b: on, me: *a}\nspec: {filter: *a, payload: *a}\n", lines.append)
    assert len(lines) == 2, "once, and an alias in itself ends"


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_written_says_the_same_to_readers_of_both_versions(text: str) -> None:
    written = dump_yaml({text: text})
    assert yaml.safe_load(written) == {text: text}
    assert parse_yaml("-", written.encode()) == [{text: text}]
