"""Settings: what the page says about each, and a change that names the version that was seen and a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode
from toban_proto.v1 import coordinator_pb2 as pb
from toban_testing.site_messages import setting_message

PATH = "/settings/leader_tick_seconds/change"


def sent(web: Any) -> list[Any]:
    """The changes that were sent."""
    return [one for one in web.cluster.reader.requests if isinstance(one, pb.UpdateSettingRequest)]


def test_a_setting_is_shown_with_range_default_effect_and_change(web: Any) -> None:
    text = web.page("/settings")
    for seen in ("leader_tick_seconds", "<strong>2</strong>", "0.2 … 10 seconds", "how often", "within 2 seconds"):
        assert seen in text
    assert "user ada" in text and f'href="{PATH}"' in text


def test_large_and_small_numbers_have_no_exponent(web: Any) -> None:
    one = setting_message(value_json="10000000", maximum=1e9, minimum=0.001)
    web.cluster.reader.responses["ListSettings"] = pb.ListSettingsResponse(settings=[one])
    text = web.page("/settings")
    assert "10000000" in text and "0.001 … 1000000000" in text


@pytest.mark.seed(10)
@pytest.mark.parametrize(("given", "value"), [("1.5", 1.5), ("7", 7), ("0", 0), ("-2", -2), ("007", 7)])
def test_a_change_names_value_version_and_reason(web: Any, given: str, value: float) -> None:
    response = web.post(PATH, value=given, reason="fewer queries")
    assert response.location == "/settings?done=setting_changed#leader_tick_seconds"
    [request] = sent(web)
    assert (request.name, request.version, request.reason) == ("leader_tick_seconds", 4, "fewer queries")
    assert json.loads(request.value_json) == value
    assert 'class="message good" role="status"' in web.page("/settings?done=setting_changed")


def test_the_first_change_of_a_setting_expects_none_before(web: Any) -> None:
    one = setting_message(version=0, value_json="1", updated_at=None, updated_by="")
    web.cluster.reader.responses["ListSettings"] = pb.ListSettingsResponse(settings=[one])
    web.post(PATH, value="3", reason="x")
    [request] = sent(web)
    assert request.HasField("version") and request.version == 0


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"value": "soon", "reason": "x"}, "is not a number"),
        ({"value": "1e3", "reason": "x"}, "is not a number"),
        ({"value": "NaN", "reason": "x"}, "is not a number"),
        ({"value": "3", "reason": ""}, "Give a reason"),
        ({"value": "3", "reason": "x", "version": ""}, "names no version"),
    ],
)
def test_a_form_that_cannot_be_read_is_not_sent(web: Any, fields: dict[str, str], why: str) -> None:
    response = web.post(PATH, **fields)
    text = response.get_data(as_text=True)
    assert response.status_code == 400 and why in text and f'value="{fields["value"]}"' in text
    assert sent(web) == []


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (ErrorCode.INVALID_ARGUMENT, 400, "leader_tick_seconds stays 2: it must be below lease_seconds"),
        (ErrorCode.CONFLICT, 409, "setting leader_tick_seconds has version 5, not 4"),
    ],
)
def test_a_refusal_is_shown_at_the_field(web: Any, code: ErrorCode, status: int, message: str) -> None:
    web.refuse("UpdateSetting", code, message)
    response = web.post(PATH, value="9", reason="slower")
    text = response.get_data(as_text=True)
    field = text.partition('<p class="field wrong">')[2].partition("</p>")[0]
    assert response.status_code == status and message in field and 'value="9"' in field
    assert 'aria-describedby="value-problem"' in field and "slower</textarea>" in text


@pytest.mark.parametrize(("value", "reason"), [("3", ""), ("soon", "x"), ("9", "x")])
def test_a_refused_form_keeps_its_version_when_another_change_came(web: Any, value: str, reason: str) -> None:
    web.refuse("UpdateSetting", ErrorCode.INVALID_ARGUMENT)
    newer = pb.ListSettingsResponse(settings=[setting_message(version=9)])
    web.page(PATH)
    web.cluster.reader.responses["ListSettings"] = newer
    text = web.post(PATH, value=value, reason=reason, version="4").get_data(as_text=True)
    assert 'name="version" value="4"' in text, "sent again, it is refused for the newer change"
    web.refuse("UpdateSetting", ErrorCode.CONFLICT)
    text = web.post(PATH, value="3", reason="x", version="4").get_data(as_text=True)
    assert 'name="version" value="9"' in text, "now that the change is shown"


def test_the_default_can_be_filled_in(web: Any) -> None:
    assert f'href="{PATH}?value=1"' in web.page(PATH)
    assert 'name="value" inputmode="decimal" required maxlength="26" autocomplete="off" value="1"' in web.page(
        f"{PATH}?value=1"
    )


def test_an_unknown_setting_is_not_found(web: Any) -> None:
    assert web.get("/settings/nothing/change").status_code == 404


def test_others_than_administrators_only_read(web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people = web.worker.context.gate.people
    monkeypatch.setattr(people, "person", lambda *_args, **_named: SignedIn(user="ed", role="editor"))
    assert "/change" not in web.page("/settings") and web.get(PATH).status_code == 403
