"""No value gets through, in whatever pieces the bytes come, and nothing else is touched."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toban_domain.output_redaction import Redactor, byte_patterns, masked, patterns, secret_values

KEY = "s3cr=t/value+x ü"


def whole(forms: list[bytes], data: bytes) -> bytes:
    one = Redactor(forms)
    return one.feed(data) + one.finish()


def in_pieces(forms: list[bytes], data: bytes, size: int) -> bytes:
    one = Redactor(forms)
    return b"".join(one.feed(data[at : at + size]) for at in range(0, len(data), size)) + one.finish()


# Few letters, so that values overlap with each other, with themselves, and with what is around them.
values = st.lists(st.text("ab", min_size=4, max_size=7), min_size=1, max_size=3)
outputs = st.text("abc\n", max_size=60).map(str.encode)


@given(values, outputs, st.integers(1, 9))
@example(["aaaa"], b"a" * 40, 3)
@example(["abab", "babb"], b"ababbabb", 1)
@example(["aaab", "aaaba"], b"aaaaaabaaab", 2)
def test_pieces_change_nothing(secrets: list[str], data: bytes, size: int) -> None:
    forms = [text.encode() for text in secrets]
    assert in_pieces(forms, data, size) == whole(forms, data)


@given(values, outputs)
def test_what_is_masked_is_exactly_what_values_cover(secrets: list[str], data: bytes) -> None:
    covered = [False] * len(data)
    for text in secrets:
        form = text.encode()
        for at in range(len(data) - len(form) + 1):
            if data[at : at + len(form)] == form:
                covered[at : at + len(form)] = [True] * len(form)
    kept = bytes(byte for byte, hidden in zip(data, covered, strict=True) if not hidden)
    assert whole([text.encode() for text in secrets], data).replace(b"***", b"") == kept


@given(st.binary(max_size=200), st.integers(1, 50))
def test_bytes_without_a_value_pass_as_they_are(data: bytes, size: int) -> None:
    assert in_pieces(patterns({"never there at all"}), data, size) == data


@given(st.text(min_size=6, max_size=30), st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_base64_at_every_alignment(secret: str, before: bytes, after: bytes, url: bool) -> None:
    raw = secret.encode(errors="replace")
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    found = whole(patterns({secret}), encode(before + raw + after))
    assert b"***" in found
    # At most a few bits at either end of the value are left.
    assert len(found) <= 4 * ((len(before) + len(after)) // 3 + 2) + 2 + 3


@pytest.mark.parametrize("size", range(16, 22))
@pytest.mark.parametrize("before", [b"", b"u:", b"me:"])
@pytest.mark.parametrize("after", [b"", b"\n"])
def test_base64_covers_the_end_of_a_value_of_any_length(size: int, before: bytes, after: bytes) -> None:
    secret = "s3cr=t/value+x-and-more"[:size]
    encoded = base64.b64encode(before + secret.encode() + after)
    start, mask, end = whole(patterns({secret}), encoded).partition(b"***")
    # Of a line break that was encoded with the value the characters without a bit of the value are left.
    assert mask and end == (encoded[-(-8 * len(before + secret.encode()) // 6) :] if after else b"")
    assert before or not start


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        quote(KEY, safe=""),
        quote(KEY),
        quote_plus(KEY),
        quote(KEY, safe="")
        .replace("%3D", "%3d")
        .replace("%2F", "%2f")
        .replace("%2B", "%2b")
        .replace("%C3%BC", "%c3%bc"),
        json.dumps({"key": KEY}),
        json.dumps({"key": KEY}, ensure_ascii=False),
    ],
)
def test_other_forms(form: str) -> None:
    assert "value" not in masked(f"a {form} b", patterns({KEY}))
    assert masked(f"a {form} b", patterns({KEY})).startswith("a ")


def test_a_value_is_out_as_soon_as_it_cannot_grow() -> None:
    one = Redactor([b"secret"])
    assert one.feed(b"a secret b\nsec") == b"a *** b\n"
    assert one.feed(b"tion\n") == b"section\n"
    assert (one.finish(), one.count) == (b"", 1)


def test_each_line_of_a_value_of_several_lines() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n}\n-----END KEY-----\n"
    out = masked(f"{key} and\n  MIIEvQIBADANBg\r\n}} kqhkiG9w0BAQEF", patterns({key}))
    assert "MII" not in out
    assert "kqh" not in out
    assert out.endswith("}} ***".replace("}}", "}"))


@pytest.mark.parametrize("value", [b"hunter22", "h\u00fcnter22".encode(), b"hunter\xff\0\x80"])
def test_values_that_need_not_be_text(value: bytes) -> None:
    """As they are, encoded, and without the line ending that a file may have."""
    out = whole(byte_patterns([value + b"\n"]), b"a " + value + b" b " + base64.b64encode(value) + b" c")
    assert out.startswith(b"a *** b ***")
    assert out == b"a *** b *** c"


def test_binary_values_leave_no_empty_form() -> None:
    assert byte_patterns([b"\xff \n", b""]) == []


def test_names_of_variables_and_payload_keys() -> None:
    payload = json.dumps({"db": {"password": "hunter22", "ports": [5432, True, None]}, "pin": "12", "other": "visible"})
    found, short = secret_values(["TOKEN", "db", "pin", "nothing"], env={"TOKEN": "abcd1234"}, payload_json=payload)
    assert found == {"abcd1234", "hunter22", "5432"}
    assert short == ["pin"]


@pytest.mark.parametrize("payload", ["", "[1]", "{", '{"a": "\\ud800xxxx"}'])
def test_any_payload_will_do(payload: str) -> None:
    values, _ = secret_values(["a"], env={}, payload_json=payload)
    assert all(patterns(values)) or not values
