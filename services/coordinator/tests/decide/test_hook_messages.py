"""Which messages to hooks are authentic, what is read from them, and which configuration is refused."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from toban_coordinator.decide.notifications.hook_messages import HookMessage, is_authentic, read_message, sign
from toban_coordinator.decide.notifications.hooks import (
    CLOUDEVENTS,
    CLOUDEVENTS_TOKEN,
    GITHUB,
    KINDS,
    STANDARD,
    HookMapping,
    check_mapping,
    check_name,
    check_rate,
    check_secret,
    make_secret,
)
from toban_domain.errors import ErrorCode, TobanError

NOW = 1_795_424_461.0
ANY = HookMapping(event_type="x")
CE = {"ce-id": "7", "ce-source": "/shop", "ce-type": "order.paid", "ce-specversion": "1.0"}
CE_JSON = {**CE, "content-type": "application/json"}
STRUCTURED = {"id": "7", "source": "/shop", "type": "order.paid", "specversion": "1.0"}


def secret(kind: str, byte: int = 1) -> str:
    return make_secret(kind, bytes([byte]) * 32)


def message(body: Any = None, *, raw: bytes | None = None, **headers: str) -> HookMessage:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HookMessage(name="h", headers=named, body=json.dumps(body or {}).encode() if raw is None else raw)


def signed(kind: str, body: Any = None, *, by: str = "", at: float = NOW, **headers: str) -> HookMessage:
    given = message(body)
    made = sign(kind, by or secret(kind), given.body, message_id="m-1", now=at)
    return HookMessage(name="h", headers={**made, **message(**headers).headers}, body=given.body)


def test_the_example_of_standard_webhooks() -> None:
    """Of the specification: its secret, its message, its signature."""
    headers = {
        "webhook_id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook_timestamp": "1614265330",
        "webhook_signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    given = message(raw=b'{"test": 2432232314}', **headers)
    assert is_authentic(STANDARD, ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], given)


def test_the_example_of_github() -> None:
    """Of its documentation."""
    found = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    given = message(raw=b"Hello, World!", x_hub_signature_256=found)
    assert is_authentic(GITHUB, ["It's a Secret to Everybody"], given)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_by_right_and_wrong_secrets(kind: str) -> None:
    good = signed(kind, {"a": 1})
    assert is_authentic(kind, [secret(kind)], good)
    assert is_authentic(kind, [secret(kind, 2), secret(kind)], good), "one of two valid secrets"
    assert not is_authentic(kind, [secret(kind, 2)], good)
    assert not is_authentic(kind, [], good)
    assert not is_authentic(kind, [secret(kind)], message({"a": 1})), "no signature"
    if kind != CLOUDEVENTS_TOKEN:
        assert not is_authentic(kind, [secret(kind)], HookMessage(name="h", headers=good.headers, body=b'{"a": 2}'))


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp"])
def test_id_and_time_are_signed(name: str) -> None:
    good = signed(STANDARD)
    assert not is_authentic(STANDARD, [secret(STANDARD)], HookMessage(name="h", headers={**good.headers, name: "9"}))


def test_one_of_several_signatures_counts() -> None:
    good = signed(STANDARD)
    both = f"v1a,xx v1,{base64.b64encode(bytes(32)).decode()} {good.headers['webhook-signature']}"
    headers = {**good.headers, "webhook-signature": both}
    assert is_authentic(STANDARD, [secret(STANDARD)], HookMessage(name="h", headers=headers, body=good.body))


def test_an_empty_signature_is_none() -> None:
    for kind, headers in (
        (GITHUB, {"x_hub_signature_256": "sha256="}),
        (CLOUDEVENTS_TOKEN, {"authorization": "Bearer "}),
    ):
        assert not is_authentic(kind, [secret(kind)], message(**headers))
    plain = hmac.new(b"", b"{}", hashlib.sha256).hexdigest()
    assert not is_authentic(GITHUB, [secret(GITHUB)], message(x_hub_signature_256=plain))


@pytest.mark.parametrize("off", [-301, 301])
def test_an_old_or_future_message_is_refused(off: int) -> None:
    with pytest.raises(TobanError, match=r"header webhook-timestamp is 301 s in the (past|future)"):
        read_message(STANDARD, ANY, signed(STANDARD, at=NOW + off), now=NOW)
    assert read_message(STANDARD, ANY, signed(STANDARD, at=NOW + off * 0.99), now=NOW).type == "x"


def test_ids_repeat_for_a_repeated_message() -> None:
    assert read_message(STANDARD, ANY, signed(STANDARD), now=NOW).id == "m-1"
    assert read_message(GITHUB, ANY, signed(GITHUB), now=NOW).id == "m-1"
    first, second = (
        read_message(CLOUDEVENTS_TOKEN, ANY, message(**{**CE_JSON, "ce_source": source}), now=NOW).id
        for source in ("/a", "/b")
    )
    assert len(first) == 64 and first != second, "ids of CloudEvents are unique in their source only"
    long = read_message(GITHUB, ANY, message(x_github_delivery="x" * 500), now=NOW)
    assert len(long.id) == 64
    with pytest.raises(TobanError, match="x-github-delivery is missing"):
        read_message(GITHUB, ANY, message({}), now=NOW)


def test_a_value_of_a_header_or_of_the_body_decides() -> None:
    events = {"push": "git.push"}
    mapping = check_mapping(HookMapping(events=events), GITHUB)
    assert read_message(GITHUB, mapping, signed(GITHUB, x_github_event="push"), now=NOW).type == "git.push"
    assert read_message(GITHUB, mapping, signed(GITHUB, x_github_event="star"), now=NOW).type == ""
    assert read_message(GITHUB, mapping, signed(GITHUB, x_github_event="ping"), now=NOW).is_ping
    with pytest.raises(TobanError, match="no text at header:x-github-event"):
        read_message(GITHUB, mapping, signed(GITHUB), now=NOW)
    mapping = check_mapping(HookMapping(events=events, type_from="field:a.b"), STANDARD)
    assert read_message(STANDARD, mapping, signed(STANDARD, {"a": {"b": "push"}}), now=NOW).type == "git.push"
    with pytest.raises(TobanError, match=r"no text at field:a\.b"):
        read_message(STANDARD, mapping, signed(STANDARD, {"a": {"b": 1}}), now=NOW)


@pytest.mark.parametrize("kind", [STANDARD, CLOUDEVENTS])
def test_a_header_that_is_not_signed_decides_nothing(kind: str) -> None:
    mapping = HookMapping(events={"push": "git.push"}, type_from="header:x-kind")
    with pytest.raises(TobanError, match=r"does not cover header:x-kind.* use field:PATH"):
        check_mapping(mapping, kind)
    # Also for a hook that is stored so.
    structured = {"content_type": "application/cloudevents+json"}
    with pytest.raises(TobanError, match="does not cover header:x-kind"):
        read_message(kind, mapping, signed(kind, STRUCTURED, x_kind="push", **structured), now=NOW)
    for other in (GITHUB, CLOUDEVENTS_TOKEN):
        assert check_mapping(mapping, other).type_from == "header:x-kind"


def test_a_signed_cloud_event_has_its_attributes_in_the_body() -> None:
    """Headers are not signed: whoever changes them on the way would choose type and id."""
    mapping = check_mapping(HookMapping(events={"order.paid": "paid"}), CLOUDEVENTS)
    good = signed(CLOUDEVENTS, STRUCTURED, content_type="application/cloudevents+json")
    assert read_message(CLOUDEVENTS, mapping, good, now=NOW).type == "paid"
    changed = {**good.headers, **CE, "ce-type": "order.paid"}
    for kind in ("application/json", "application/vnd.x+json", "", "application/cloudevents"):
        message = HookMessage(name="h", headers={**changed, "content-type": kind}, body=good.body)
        assert is_authentic(CLOUDEVENTS, [secret(CLOUDEVENTS)], message)
        with pytest.raises(TobanError, match="structured mode") as caught:
            read_message(CLOUDEVENTS, mapping, message, now=NOW)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
    # Beside a structured event they have no effect.
    beside = HookMessage(name="h", headers={**good.headers, "ce-type": "other", "ce-id": "8"}, body=good.body)
    assert read_message(CLOUDEVENTS, mapping, beside, now=NOW).payload == STRUCTURED


def test_the_event_keeps_the_fields_that_are_named() -> None:
    mapping = HookMapping(event_type="x", fields=["a.b", "c", "a.d", "e"])
    body = {"a": {"b": 1, "d": [2], "f": 3}, "c": None, "g": 4}
    assert read_message(GITHUB, mapping, signed(GITHUB, body), now=NOW).payload == {"a": {"b": 1, "d": [2]}, "c": None}
    crossing = HookMapping(event_type="x", fields=["c", "c.d", "a", "a.b"])
    assert read_message(GITHUB, crossing, signed(GITHUB, body), now=NOW).payload["c"] is None


def test_cloud_events_of_both_modes_are_equal() -> None:
    binary = message({"id": 7}, **{**CE_JSON, "ce_subject": "caf%C3%A9"})
    structured = message(
        {**STRUCTURED, "subject": "café", "data": {"id": 7}}, content_type="application/cloudevents+json; charset=utf-8"
    )
    found = [read_message(CLOUDEVENTS_TOKEN, ANY, one, now=NOW) for one in (binary, structured)]
    assert found[0] == found[1] and found[0].payload["data"] == {"id": 7}
    assert read_message(CLOUDEVENTS_TOKEN, ANY, message(raw=b"", **CE), now=NOW).payload["data"] is None
    by_signature = signed(CLOUDEVENTS, STRUCTURED, content_type="application/cloudevents+json")
    assert read_message(CLOUDEVENTS, ANY, by_signature, now=NOW).id == "m-1", "the id that is signed"


@pytest.mark.parametrize(
    ("headers", "raw", "words"),
    [
        ({"content_type": "application/json"}, b"{}", "has no id"),
        ({**CE_JSON, "ce_specversion": "0.3"}, b"{}", "specversion '0.3'"),
        ({**CE, "content_type": "text/plain"}, b"x", "text/plain; only JSON is taken"),
        ({"content_type": "application/cloudevents-batch+json"}, b"[]", "send one event a request"),
        ({"content_type": "application/cloudevents+json"}, b'{"id": 7}', "has no id"),
    ],
)
def test_what_is_no_cloud_event(headers: dict[str, str], raw: bytes, words: str) -> None:
    named = {name.replace("ce-", "ce_"): value for name, value in headers.items()}
    with pytest.raises(TobanError, match=words):
        read_message(CLOUDEVENTS_TOKEN, ANY, message(raw=raw, **named), now=NOW)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[1]", "a list"),
        (b'{"a": NaN}', "no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "no JSON"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested more than 100 levels"),
        (b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "nested more than 100 levels"),
        (b"[" * 100_000, "nested more than 100 levels"),
    ],
)
def test_a_body_that_is_no_object(raw: bytes, words: str) -> None:
    with pytest.raises(TobanError, match=words) as caught:
        read_message(GITHUB, ANY, message(raw=raw, x_github_delivery="1"), now=NOW)
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID


def test_a_form_is_refused_with_its_remedy() -> None:
    form = message(raw=b"payload=%7B%7D", content_type="application/x-www-form-urlencoded", x_github_delivery="1")
    with pytest.raises(TobanError, match="choose application/json"):
        read_message(GITHUB, ANY, form, now=NOW)


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (HookMapping(), "and not both"),
        (HookMapping(event_type="x", events={"a": "b"}), "and not both"),
        (HookMapping(event_type="x", type_from="field:a"), "leave one of them out"),
        (HookMapping(event_type="a b"), "not a type of event"),
        (HookMapping(events={"a": "@run-end"}), "not a type of event"),
        (HookMapping(events={"": "x"}), "no value of a message"),
        (HookMapping(events={str(n): "x" for n in range(101)}), "give fewer"),
        (HookMapping(events={"a": "x"}, type_from="header:Cookie"), "no header of a message"),
        (HookMapping(events={"a": "x"}, type_from="query:a"), "header:NAME or field:PATH"),
        (HookMapping(events={"a": "x"}, type_from="field:a..b"), "no path into the body"),
        (HookMapping(event_type="x", fields=[""]), "no path into the body"),
    ],
)
def test_a_mapping_that_is_refused(mapping: HookMapping, words: str) -> None:
    with pytest.raises(TobanError, match=words):
        check_mapping(mapping, STANDARD)


def test_where_a_type_is_read_from() -> None:
    for kind, source in ((GITHUB, "header:x-github-event"), (STANDARD, "field:type"), (CLOUDEVENTS, "field:type")):
        assert check_mapping(HookMapping(events={"a": "x"}), kind).type_from == source
    assert check_mapping(HookMapping(events={"a": "x"}, type_from="header:X-Kind"), GITHUB).type_from == "header:x-kind"
    assert check_mapping(HookMapping(event_type="x"), GITHUB).type_from == ""


def test_secrets_names_and_rates() -> None:
    for kind in KINDS:
        assert check_secret(kind, secret(kind)) == secret(kind)
        with pytest.raises(TobanError) as caught:
            check_secret(kind, "hidden word")
        assert "hidden" not in caught.value.message
    for wrong in ("", "A", "a/b", "a" * 56):
        with pytest.raises(TobanError, match="not a name of a hook"):
            check_name(wrong)
    for rate in (0, 60_001):
        with pytest.raises(TobanError, match="use 1 to 60000"):
            check_rate(rate)
