"""What the group of an executor allows when it registers: its labels, and the instance that it registers as (docs/executor-groups.md)."""

from __future__ import annotations

from dataclasses import replace

from toban_coordinator.store.executors import executor_groups
from toban_coordinator.store.executors.executors import Registration
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import allowed_labels, refusal
from toban_observability import metrics
from toban_observability.log_throttle import LogThrottle
from toban_observability.logs import get_logger
from toban_runtime.clock import Clock
from toban_store.tx import Tx

_log = get_logger(__name__)
_refused = metrics.counter(
    "toban_registrations_refused_total",
    "Registrations of executors that their group does not allow: group (it does not exist), label (reserved by another group or not to be "
    "claimed), instance (it belongs to another group).",
    ("reason",),
)
for _reason in ("group", "label", "instance"):
    _refused.labels(_reason)


class GroupAdmission:
    """Decides about registrations by the groups as they are stored."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._throttle = LogThrottle()

    async def admit(self, t: Tx, new: Registration) -> Registration:
        """The registration with the labels that it gets. Raises PERMISSION_DENIED. Groups do not change until the transaction ends."""
        await executor_groups.hold(t)
        known = await executor_groups.groups(t)
        own = known.get(new.group)
        if own is None:
            raise self._denied(
                new,
                "group",
                f"the certificate names executor group {new.group!r}, which does not exist; make it: toban group add {new.group}",
            )
        others = [one.rules for one in known.values()]
        if why := refusal(new.labels, own.rules, others):
            raise self._denied(new, "label", why)
        owner = await executor_groups.own_instance(t, new.instance, new.group)
        if owner != new.group:
            raise self._denied(
                new,
                "instance",
                f"instance {new.instance} belongs to executor group {owner!r}, and the certificate names group {new.group!r}; give the "
                f"executor a new state directory, or hand the instance over: toban group set {new.group} --instance {new.instance}",
            )
        return replace(new, labels=allowed_labels(new.labels, own.rules, others))

    def _denied(self, new: Registration, reason: str, message: str) -> TobanError:
        _refused.labels(reason).inc()
        suppressed = self._throttle.admit((new.group, new.instance, reason), self._clock.monotonic())
        if suppressed is not None:
            _log.error(
                "registration of an executor refused",
                group=new.group,
                instance=new.instance,
                node_id=new.node_id,
                why=message,
                not_logged=suppressed,
            )
        return TobanError(ErrorCode.PERMISSION_DENIED, message)
