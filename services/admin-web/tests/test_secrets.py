"""Secrets on the site: names and uses are shown, values only go in."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import secret_message

VALUE = "s3cret value, with spaces "
WHY = "the old one was known"
PATH = "/secrets/pgpass/set"


def sent(web: Any) -> list[Any]:
    """The values that were sent."""
    found: list[Any] = web.asked(pb.SetSecretRequest)
    return found


def test_secrets_are_listed_with_uses_and_the_last_change(web: Any) -> None:
    unread = secret_message(name="deploy-key", jobs=[], used_by=[], readable=False)
    web.cluster.reader.responses["ListSecrets"] = pb.ListSecretsResponse(secrets=[secret_message(), unread])
    text = web.page("/secrets")
    for seen in (
        "pgpass",
        'href="/jobs/hello"',
        "user ada",
        "5 m ago",
        "every job",
        "key is missing",
        f'href="{PATH}"',
    ):
        assert seen in text
    web.cluster.reader.responses["ListSecrets"] = pb.ListSecretsResponse()
    assert 'class="button" href="/new/secret"' in web.page("/secrets")


@pytest.mark.parametrize(
    ("given", "jobs", "all_jobs"),
    [
        ({"for": "keep"}, [], False),
        ({"for": "all", "jobs": "hello"}, [], True),
        ({"for": "some", "jobs": "hello, report hello"}, ["hello", "report"], False),
    ],
)
def test_a_new_value_is_sent_as_it_was_typed(
    web: Any, given: dict[str, str], jobs: list[str], all_jobs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    response = web.post(PATH, value=VALUE, reason=WHY, **given)
    assert response.location == "/secrets?done=secret_set#pgpass"
    [request] = sent(web)
    assert (request.name, request.value, request.reason) == ("pgpass", VALUE.encode(), WHY)
    assert (list(request.jobs), request.all_jobs) == (jobs, all_jobs)
    assert VALUE.strip() not in caplog.text and VALUE.strip() not in str(response.headers)


def test_the_field_of_a_value_hides_it_and_has_none(web: Any) -> None:
    [field] = re.findall(r'<input id="value"[^>]*>', web.page(f"{PATH}?value=abcdef"))
    assert 'type="password"' in field and 'autocomplete="off"' in field and ' value="' not in field
    assert 'method="post"' in web.page(PATH)


def test_a_file_is_stored_as_it_is(web: Any) -> None:
    key = b"-----BEGIN KEY-----\r\n\x00\xff\n"
    response = web.post(PATH, file=(io.BytesIO(key), "key.pem"), reason=WHY, **{"for": "keep"})
    assert response.status_code == 303 and sent(web)[0].value == key


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"reason": ""}, "Give a reason"),
        ({"value": ""}, "the value is empty"),
        ({"value": "abc"}, "the value has 3 bytes"),
        ({"value": VALUE * 700}, "the limit is 16384"),
        ({"for": "some", "jobs": " , "}, "Name the jobs"),
        ({"file": (io.BytesIO(b"another value"), "x")}, "Give either a value or a file"),
    ],
)
def test_a_form_that_cannot_be_stored_is_not_sent_and_forgets_the_value(
    web: Any, fields: dict[str, Any], why: str
) -> None:
    response = web.post(PATH, **({"value": VALUE, "reason": WHY, "for": "keep"} | fields))
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and why in text and "give it again" in text and VALUE.strip() not in text
    assert sent(web) == []


def test_a_refusal_is_shown_without_the_value(web: Any) -> None:
    web.refuse("SetSecret", ErrorCode.RESOURCE_INVALID_STATE, "no key file")
    response = web.post(PATH, value=VALUE, reason=WHY, **{"for": "some", "jobs": "hello"})
    text = response.get_data(as_text=True)
    assert response.status_code == 409 and "no key file" in text and VALUE.strip() not in text
    assert 'value="some" checked' in text and f"{WHY}</textarea>" in text


def test_a_new_secret_takes_no_name_that_is_in_use(web: Any) -> None:
    given = {"value": VALUE, "reason": WHY, "for": "all"}
    assert "this name already" in web.post("/new/secret", name="pgpass", **given).get_data(as_text=True)
    assert "is not a name of a secret" in web.post("/new/secret", name="No Name", **given).get_data(as_text=True)
    assert sent(web) == []
    assert web.post("/new/secret", name="mail", **given).location == "/secrets?done=secret_set#mail"
    assert (sent(web)[0].name, sent(web)[0].all_jobs) == ("mail", True)


@pytest.mark.parametrize("force", [{}, {"force": "1"}])
def test_a_secret_is_deleted_with_a_reason(web: Any, force: dict[str, str]) -> None:
    path = "/secrets/pgpass/delete"
    assert web.post(path).status_code == 400
    assert web.asked(pb.RemoveSecretRequest) == []
    assert web.post(path, reason=WHY, **force).location == "/secrets?done=secret_deleted"
    [request] = web.asked(pb.RemoveSecretRequest)
    assert (request.name, request.force, request.reason) == ("pgpass", bool(force), WHY)
    web.refuse("RemoveSecret", ErrorCode.RESOURCE_INVALID_STATE, "job hello names it")
    response = web.post(path, reason=WHY, **force)
    assert response.status_code == 409 and "job hello names it" in response.get_data(as_text=True)


def test_editors_read_the_list_and_operators_nothing(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people, role = web.worker.context.gate.people, "editor"
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="ed", role=role))
    assert "/secrets/pgpass" not in web.page("/secrets") and "/new/secret" not in web.page("/secrets")
    for path in (PATH, "/secrets/pgpass/delete", "/new/secret"):
        assert web.get(path).status_code == 403, path
    role = "operator"
    assert web.get("/secrets").status_code == 403


def test_texts_of_a_secret_do_not_become_markup(web: Any) -> None:
    evil = "<script>alert('x')</script>\"'"
    named = secret_message(name=evil, jobs=[evil], used_by=[evil], key_id=evil, updated_by=evil)
    used = secret_message(jobs=[evil], used_by=[evil], updated_by=evil)
    web.cluster.reader.responses["ListSecrets"] = pb.ListSecretsResponse(secrets=[named, used])
    for path in ("/secrets", PATH, "/secrets/pgpass/delete"):
        text = web.page(path)
        assert "<script>alert" not in text and "&lt;script&gt;" in text


def test_an_unknown_secret_is_not_found(web: Any) -> None:
    assert web.get("/secrets/nothing/set").status_code == 404
    assert web.get("/secrets/nothing/delete").status_code == 404
