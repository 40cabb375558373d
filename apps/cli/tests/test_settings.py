"""`toban settings`: lists, changes, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toban_domain.settings import SETTINGS
from toban_proto.v1 import coordinator_pb2 as pb


def setting(name: str, value: float, version: int = 0) -> pb.Setting:
    spec = SETTINGS[name]
    return pb.Setting(
        name=name,
        value_json=json.dumps(value),
        default_json=json.dumps(spec.default),
        unit=spec.unit,
        description=spec.affects,
        version=version,
        minimum=spec.minimum,
        maximum=spec.maximum,
        takes_effect=spec.takes_effect,
    )


@pytest.fixture
def settings(cluster: Any) -> Any:
    """A cluster that knows two settings and takes every change."""
    known = [setting("assign_ahead_seconds", 45, version=2), setting("fire_batch_size", 500)]
    cluster.operations.answers["ListSettings"] = pb.ListSettingsResponse(settings=known)
    cluster.operations.answers["UpdateSetting"] = lambda request: setting(
        request.name, json.loads(request.value_json), version=3
    )
    return cluster.operations


def test_settings_are_listed_and_shown(settings: Any, toban: Any) -> None:
    code, out, _ = toban("settings", "list")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("assign_ahead_seconds"))
    assert row.split()[:6] == ["assign_ahead_seconds", "45", "30", "0", "to", "3600"]
    code, out, _ = toban("settings", "get", "fire_batch_size")
    assert (code, "500 schedules" in out, "never" in out) == (0, True, True)
    assert toban("settings", "list", "-o", "name")[1].split() == ["assign_ahead_seconds", "fire_batch_size"]


def test_a_setting_is_changed_and_can_be_put_back(settings: Any, toban: Any) -> None:
    code, out, _ = toban("settings", "set", "assign_ahead_seconds", "60", "--reason", "why", "--version", "2")
    assert (code, out) == (
        0,
        "assign_ahead_seconds: 45 -> 60 seconds; takes effect within 2 seconds, in every service\n",
    )
    sent = settings.requests[-1]
    assert (sent.value_json, sent.reason, sent.version) == ("60", "why", 2)
    toban("settings", "set", "assign_ahead_seconds", "default")
    assert json.loads(settings.requests[-1].value_json) == 30
    assert not settings.requests[-1].HasField("version")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["set", "assign_ahead_seconds", "soon"], 65, "'soon' is not a number"),
        (["set", "assign_ahead_seconds", "true"], 65, "'true' is not a number"),
        (["get", "assign_ahead"], 66, "the nearest is assign_ahead_seconds"),
        (
            ["get", "subleader_check_seconds"],
            66,
            "the cluster has no setting 'subleader_check_seconds': it runs another release",
        ),
    ],
)
def test_wrong_words_about_settings(settings: Any, toban: Any, words: list[str], code: int, said: str) -> None:
    found, out, err = toban("settings", *words)
    assert (found, out) == (code, "") and said in err
    assert not any(isinstance(one, pb.UpdateSettingRequest) for one in settings.requests)


def test_ranges_have_all_their_digits() -> None:
    from toban_cli.commands.settings import _plain_value, _range

    assert _range(pb.Setting(minimum=0, maximum=31_536_000)) == "0 to 31536000"
    assert _plain_value("31536000.0") == "31536000"
