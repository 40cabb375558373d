"""Settings: what values they take, which may not stand together, and that old or foreign values do no harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.setting_rules import SAFETY_RULES, refusals
from toban_domain.settings import SETTINGS, Settings, SettingSpec, spec_of

DEFAULTS = Settings()


def values_of(spec: SettingSpec) -> st.SearchStrategy[float]:
    if spec.integer:
        return st.integers(int(spec.minimum), int(spec.maximum))
    return st.floats(spec.minimum, spec.maximum, allow_nan=False)


@pytest.mark.seed(61)
def test_the_defaults_are_allowed_and_safe() -> None:
    for name, spec in SETTINGS.items():
        assert spec.name == name and spec.check(spec.default) == spec.default
        assert spec.unit and spec.affects and spec.takes_effect
        assert refusals(DEFAULTS, name) == []


@pytest.mark.parametrize("name", SETTINGS)
def test_the_ends_of_a_range_are_allowed_and_nothing_beyond(name: str) -> None:
    spec = SETTINGS[name]
    for value in (spec.minimum, spec.maximum):
        assert spec.check(value) == value
    for wrong in (spec.minimum - 1e-3, spec.maximum + 1, float("nan"), float("inf"), True, "1", None, [1]):
        with pytest.raises(TobanError, match=f"{name} is .*{spec.unit}") as caught:
            spec.check(wrong)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT


def test_whole_numbers_are_whole() -> None:
    assert SETTINGS["fire_batch_size"].check(20.0) == 20
    with pytest.raises(TobanError, match="a whole number"):
        SETTINGS["fire_batch_size"].check(2.5)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("heartbeat_ttl_seconds", 2, ""),
        ("heartbeat_interval_seconds", 2.5, ""),
        ("heartbeat_interval_seconds", 2.6, "count as unreachable"),
        ("executor_lease_seconds", 4.3, ""),
        ("executor_lease_seconds", 4.2, "every running job"),
        ("leader_tick_seconds", 1.6, ""),
        ("leader_tick_seconds", 1.7, "deposed between two ticks"),
        ("leader_stale_seconds", 2.9, "deposed between two ticks"),
        ("heartbeat_interval_seconds", 30, "because of an order that no heartbeat"),
        ("reassign_after_seconds", 5, ""),
        ("assign_ahead_seconds", 3600, ""),
        ("continuation_retry_count", 6, ""),
        ("continuation_retry_count", 7, "before its executor has asked"),
        ("continuation_retry_interval_seconds", 1.1, ""),
        ("continuation_retry_interval_seconds", 1.2, "before its executor has asked"),
        ("lease_freeze_max_seconds", 1, ""),
    ],
)
def test_what_breaks_a_safety_rule_is_refused_with_the_reason(name: str, value: float, word: str) -> None:
    why = refusals(DEFAULTS.with_value(name, value), name)
    assert bool(why) == bool(word)
    assert any(word in line for line in why) or not word


def test_a_shorter_lease_must_leave_time_to_ask_whether_jobs_may_continue() -> None:
    slow = DEFAULTS.with_value("continuation_retry_interval_seconds", 1.1)
    assert refusals(slow.with_value("executor_lease_seconds", 20), "executor_lease_seconds") == []
    [why] = refusals(slow.with_value("executor_lease_seconds", 7), "executor_lease_seconds")
    assert "the tries take up to 4.3 s, half of the lease is 3.35 s" in why


def test_a_frozen_job_is_not_killed_before_a_heartbeat_could_renew_the_lease() -> None:
    rare = Settings({"heartbeat_interval_seconds": 2, "heartbeat_ttl_seconds": 10})
    [why] = refusals(rare.with_value("lease_freeze_max_seconds", 1), "lease_freeze_max_seconds")
    assert "before a heartbeat could renew the lease" in why


def test_a_rule_about_other_settings_does_not_stop_this_one() -> None:
    """An unsafe pair that was stored without the check can be corrected in any order."""
    broken = Settings({"heartbeat_interval_seconds": 10, "leader_tick_seconds": 30})
    assert refusals(broken, "assign_ahead_seconds") == []
    assert refusals(broken.with_value("leader_tick_seconds", 1), "leader_tick_seconds") == []
    assert refusals(broken, "heartbeat_ttl_seconds") != []


@given(st.fixed_dictionaries({name: values_of(spec) for name, spec in SETTINGS.items()}))
def test_accepted_values_keep_every_rule(values: dict[str, float]) -> None:
    """A sequence of accepted changes never violates a rule."""
    now = DEFAULTS
    for name, value in values.items():
        wanted = now.with_value(name, value)
        if not refusals(wanted, name):
            now = wanted
    assert all(rule.holds(now) for rule in SAFETY_RULES)
    assert now["heartbeat_ttl_seconds"] >= 2 * now["heartbeat_interval_seconds"] - 1e-6
    assert now["executor_lease_seconds"] > 3 * now["heartbeat_interval_seconds"]
    assert now["leader_stale_seconds"] >= 3 * now["leader_tick_seconds"] - 1e-6


def test_what_another_release_stored_gives_way_to_the_default() -> None:
    stored = {
        "fire_batch_size": "many",
        "assign_ahead_seconds": 5,
        "of_a_later_release": 1,
        "executor_lease_seconds": 1e9,
    }
    found = Settings.tolerant(stored, version=7)
    assert found.version == 7
    assert (found.whole("fire_batch_size"), found["assign_ahead_seconds"]) == (500, 5.0)
    assert found["executor_lease_seconds"] == DEFAULTS["executor_lease_seconds"]
    assert "of_a_later_release" not in found.values
    assert found.refused == {"fire_batch_size", "executor_lease_seconds"} and not DEFAULTS.refused


def test_equal_settings_are_equal() -> None:
    assert Settings({"assign_ahead_seconds": 5}, version=1) == Settings({"assign_ahead_seconds": 5.0}, version=1)
    assert Settings({"assign_ahead_seconds": 5}, version=1) != Settings({"assign_ahead_seconds": 5}, version=2)
    assert len({Settings(), Settings()}) == 1 and Settings() != "settings"


def test_a_name_that_is_none_gets_the_nearest() -> None:
    assert spec_of("leader_tick_seconds") is SETTINGS["leader_tick_seconds"]
    with pytest.raises(TobanError, match="the nearest is leader_tick_seconds") as caught:
        spec_of("leader_ticks_second")
    assert caught.value.code is ErrorCode.NOT_FOUND
    with pytest.raises(TobanError, match=r"'x'\. `toban settings list`"):
        spec_of("x")
