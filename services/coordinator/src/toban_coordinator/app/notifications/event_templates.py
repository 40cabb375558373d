"""Templates of the runs that one event starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toban_coordinator.app.definition_cache import DefinitionCache
from toban_coordinator.app.large_payload import CheckPending
from toban_coordinator.app.payload_validator import Key, PayloadValidator
from toban_coordinator.decide.schedules import fire
from toban_domain.concurrency import DEFAULT_SCOPE
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.event import DueTrigger
from toban_domain.event_mapping import passes_all_on
from toban_domain.fire_plan import RunTemplate
from toban_domain.job import JobSpec


class Templates:
    """Of one event: triggers that pass its whole payload on to the same definition share the answer."""

    def __init__(
        self,
        definitions: DefinitionCache,
        payloads: PayloadValidator,
        specs: Mapping[Key, JobSpec],
        *,
        scope: tuple[str, str] = DEFAULT_SCOPE,
    ) -> None:
        self._definitions = definitions
        self._payloads = payloads
        self._specs = specs
        self._scope = scope
        self._whole: dict[Key, RunTemplate | TobanError] = {}
        self._pending: list[CheckPending] = []

    def make(self, trigger: DueTrigger, payload: Mapping[str, Any]) -> RunTemplate:
        """Raises PAYLOAD_INVALID, PAYLOAD_TOO_LARGE, or INTERNAL when the definition cannot be read."""
        key = (trigger.definition_id, trigger.definition_version)
        if trigger.spec is None or not passes_all_on(trigger.spec.payload):
            return self._make(key, payload)
        if key not in self._whole:
            try:
                self._whole[key] = self._make(key, payload)
            except TobanError as error:
                self._whole[key] = error
        known = self._whole[key]
        if isinstance(known, TobanError):
            raise known
        return known

    def _make(self, key: Key, payload: Mapping[str, Any]) -> RunTemplate:
        spec = self._specs.get(key)
        if spec is None:
            raise TobanError(ErrorCode.INTERNAL, self._definitions.broken(key))
        try:
            return fire.template(spec, self._payloads.make(key, spec, payload), of=self._scope)
        except CheckPending as pending:
            self._pending.append(pending)
            raise

    async def check_pending(self) -> bool:
        """Do the large checks that `make` came upon; True when there were any, so that the event has to be judged again."""
        pending, self._pending, self._whole = self._pending, [], {}
        for one in pending:
            await one.check()
        return bool(pending)
