"""YAML of manifests: what is small and stands for much, and values that are not of the type of their tag, are refused with their place."""

from __future__ import annotations

import pytest

from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.yaml_text import MAX_BYTES, MAX_DEPTH, parse_yaml


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
        (":".join("1" * 400) + ".0", "float"),
    ],
)
def test_a_value_of_another_type_than_its_tag_is_refused_with_its_place(value: str, kind: str) -> None:
    assert f"job.yaml:2:4: the value is not of the type {kind};" in refused(f"a: 1\nb: {value}\n")
    assert f"is not of the type {kind};" in refused(f"? {value}\n: 1\n")


@pytest.mark.parametrize("escape", ["FFFFFFFF", "7FFFFFFF", "00110000"])
def test_an_escape_that_is_no_character_is_refused(escape: str) -> None:
    assert refused(f'a: "\\U{escape}"\n').startswith("job.yaml: is not YAML in UTF-8 (")
