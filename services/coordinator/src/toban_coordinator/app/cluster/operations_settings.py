"""List and change settings: checked one by one and together, compare-and-set, in the audit log, with a notification."""

from __future__ import annotations

import json
from dataclasses import dataclass

from toban_coordinator.app.named_objects import changed
from toban_coordinator.store.cluster import audit, settings
from toban_coordinator.store.cluster.settings import Stored
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.setting_rules import refusals
from toban_domain.settings import SETTINGS, SettingSpec, spec_of
from toban_observability.logs import get_logger
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A new value, as JSON. `version` is the one that must be stored now: 0 = none, None = any."""

    name: str
    value_json: str
    version: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SettingState:
    """A setting with its value; `stored` None: it is the default."""

    spec: SettingSpec
    value: float
    stored: Stored | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOperations:
    """Reads and changes table `settings`."""

    pool: Pool

    async def list(self) -> list[SettingState]:
        """All of them, in the order of docs/settings.md."""
        async with autocommit(self.pool) as t:
            stored = await settings.stored(t)
        now = settings.settings_of(stored)
        return [SettingState(spec, now[name], stored.get(name)) for name, spec in SETTINGS.items()]

    async def update(self, change: SettingChange, actor: str) -> SettingState:
        """Raises NOT_FOUND, INVALID_ARGUMENT for a value that is out of range or breaks a safety rule, CONFLICT for a stale version."""
        spec = spec_of(change.name)
        value = spec.check(_value(change))
        async with tx(self.pool) as t:
            await settings.lock(t)
            stored = await settings.stored(t)
            before = stored.get(spec.name)
            _check_version(change, before)
            now = settings.settings_of(stored)
            if (why := refusals(now.with_value(spec.name, value), spec.name)) != []:
                raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{spec.name} stays {now[spec.name]:g}: {'; '.join(why)}")
            if now[spec.name] == value:
                return SettingState(spec, value, before)
            made = await _store(t, spec, value, before, reason=change.reason, actor=actor)
        _log.info("a setting was changed", setting=spec.name, before=now[spec.name], after=value, actor=actor)
        return SettingState(spec, value, made)


def _value(change: SettingChange) -> object:
    try:
        return json.loads(change.value_json)
    except ValueError:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"value {change.value_json[:64]!r} of setting {change.name} is not a number"
        ) from None


def _check_version(change: SettingChange, before: Stored | None) -> None:
    version = before.version if before else 0
    if change.version is not None and change.version != version:
        raise TobanError(
            ErrorCode.CONFLICT,
            f"setting {change.name} has version {version}, not {change.version}: it was changed meanwhile; read it again",
            detail={"version": version, "value": before.value if before else SETTINGS[change.name].default},
        )


async def _store(t: Tx, spec: SettingSpec, value: float, before: Stored | None, *, reason: str, actor: str) -> Stored:
    version = before.version if before else 0
    made = await settings.store(t, spec.name, value, version=version, actor=actor)
    if made is None:
        raise changed("setting", spec.name)
    facts = {"value": before.value if before else spec.default, "version": version}
    after = {"value": value, "version": made.version}
    await audit.note(t, actor, "update_setting", f"setting {spec.name}", reason, before=facts, after=after)
    return made
