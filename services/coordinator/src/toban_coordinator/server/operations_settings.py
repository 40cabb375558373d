"""Operations.ListSettings and UpdateSetting: checked one by one and together, compare-and-set, written down, told to everybody."""

from __future__ import annotations

import json
from dataclasses import dataclass

from toban_coordinator.server.operations_audit import clean_reason
from toban_coordinator.store import audit, settings
from toban_coordinator.store.settings import Stored
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.settings import SETTINGS, SettingSpec, refusals, spec_of
from toban_observability.logs import get_logger
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.pool import Pool
from toban_store.tx import Tx, autocommit, tx
from toban_transport.convert import timestamp_to_pb

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsDesk:
    """Reads and changes table `settings`."""

    pool: Pool

    async def list(self) -> pb.ListSettingsResponse:
        """All of them, in the order of docs/settings.md."""
        async with autocommit(self.pool) as t:
            stored = await settings.stored(t)
        now = settings.settings_of(stored)
        return pb.ListSettingsResponse(
            settings=[_setting(spec, now[name], stored.get(name)) for name, spec in SETTINGS.items()]
        )

    async def update(self, request: pb.UpdateSettingRequest, actor: str) -> pb.Setting:
        """Raises NOT_FOUND, INVALID_ARGUMENT for a value that is out of range or breaks a safety rule, CONFLICT for a stale version."""
        spec = spec_of(request.name)
        value = spec.check(_value(request))
        async with tx(self.pool) as t:
            await settings.lock(t)
            stored = await settings.stored(t)
            before = stored.get(spec.name)
            _check_version(request, before)
            now = settings.settings_of(stored)
            if (why := refusals(now.with_value(spec.name, value), spec.name)) != []:
                raise TobanError(ErrorCode.INVALID_ARGUMENT, f"{spec.name} stays {now[spec.name]:g}: {'; '.join(why)}")
            if now[spec.name] == value:
                return _setting(spec, value, before)
            made = await _store(t, spec, value, before, reason=request.reason, actor=actor)
        _log.info("a setting was changed", setting=spec.name, before=now[spec.name], after=value, actor=actor)
        return _setting(spec, value, made)


def _value(request: pb.UpdateSettingRequest) -> object:
    try:
        return json.loads(request.value_json)
    except ValueError:
        raise TobanError(
            ErrorCode.INVALID_ARGUMENT, f"value {request.value_json[:64]!r} of setting {request.name} is not a number"
        ) from None


def _check_version(request: pb.UpdateSettingRequest, before: Stored | None) -> None:
    version = before.version if before else 0
    if request.HasField("version") and request.version != version:
        raise TobanError(
            ErrorCode.CONFLICT,
            f"setting {request.name} has version {version}, not {request.version}: somebody changed it; look at it again",
            detail={"version": version, "value": before.value if before else SETTINGS[request.name].default},
        )


async def _store(t: Tx, spec: SettingSpec, value: float, before: Stored | None, *, reason: str, actor: str) -> Stored:
    version = before.version if before else 0
    made = await settings.store(t, spec.name, value, version=version, actor=actor)
    if made is None:
        raise TobanError(ErrorCode.CONFLICT, f"setting {spec.name} was changed at the same time; look at it again")
    action = audit.AdminAction(
        actor=actor,
        action="update_setting",
        target=f"setting {spec.name}",
        before={"value": before.value if before else spec.default, "version": version},
        after={"value": value, "version": made.version},
        reason=clean_reason(reason),
    )
    await audit.note(t, action)
    return made


def _setting(spec: SettingSpec, value: float, stored: Stored | None) -> pb.Setting:
    return pb.Setting(
        name=spec.name,
        value_json=json.dumps(value),
        default_json=json.dumps(spec.default),
        unit=spec.unit,
        description=spec.affects,
        version=stored.version if stored else 0,
        minimum=spec.minimum,
        maximum=spec.maximum,
        updated_at=timestamp_to_pb(stored.updated_at) if stored else None,
        updated_by=stored.updated_by if stored else "",
        takes_effect=spec.takes_effect,
    )
