"""What an incarnation recovers before it registers: the journal, undelivered guard messages, and its identity."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from toban_domain.version import VERSION
from toban_executor.app.attempt_manager import AttemptManager
from toban_executor.app.outcome_reporter import INHERITED
from toban_executor.config import ExecutorConfig
from toban_executor.guard import guard_state
from toban_executor.ports.coordinator import Identity
from toban_executor.ports.guards import Prepared
from toban_executor.ports.journal import Journal
from toban_observability.logs import get_logger

_log = get_logger(__name__)
COPIED = "copied"
"""Stored as the machine of a state directory whose incarnation goes on in another copy of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIdentity:
    """What the journal has: the instance, the machine it was made on, the incarnation registered last. Empty = unknown."""

    instance: str
    machine: str
    registered: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """The instance to register as, and the incarnation whose end it may attest (empty for none).

    `copied`: the state directory was made on another machine, or another copy of this machine goes on with it.
    """

    id: str
    previous: str
    copied: bool


def instance_of(stored: StoredIdentity, *, machine: str, new_id: str) -> Instance:
    """A copied directory is a new instance and attests no end: the original may run elsewhere, under another boot id."""
    copied = bool(stored.instance) and stored.machine not in ("", machine)
    if copied or not stored.instance:
        return Instance(id=new_id, previous="", copied=copied)
    return Instance(id=stored.instance, previous=stored.registered, copied=False)


class Recovery:
    """`machine` names this machine; `new_id` makes the id of a new instance, `instance_secret` gives its secret (True: a new one).

    `recover_messages` puts undelivered guard messages into the journal; False when the disk refuses.
    """

    def __init__(
        self,
        *,
        config: ExecutorConfig,
        prepared: Prepared,
        machine: str,
        journal: Journal,
        attempts: AttemptManager,
        new_id: Callable[[], str],
        instance_secret: Callable[[bool], str],
        recover_messages: Callable[[], bool],
    ) -> None:
        self._config = config
        self._prepared = prepared
        self._machine = machine
        self._journal = journal
        self._attempts = attempts
        self._new_id = new_id
        self._instance_secret = instance_secret
        self._recover_messages = recover_messages

    def run(self, grpc_port: int) -> Identity:
        """Restore the state of earlier processes and start the journal; the identity to register with.

        The previous incarnation is attested empty only when all its outcomes fit into the registration: a coordinator takes
        its other runs for lost.
        """
        complete = self._recover_messages()
        self._attempts.restore(self._journal.remembered())
        instance = self._instance()
        self._journal.start()
        prepared, config = self._prepared, self._config
        return Identity(
            incarnation=prepared.guards.incarnation,
            instance=instance.id,
            instance_secret=self._instance_secret(instance.copied),
            node_id=config.node_id,
            boot_id=guard_state.boot_id(),
            pid=os.getpid(),
            grpc_host=config.advertised,
            grpc_port=grpc_port,
            slots=config.slots or 0,
            most_slots=prepared.most_slots,
            ready_slots=len(prepared.guards.slots),
            version=VERSION,
            labels=config.labels,
            previous_incarnation=instance.previous,
            previous_verified_empty=prepared.settled.get(instance.previous, False)
            and complete
            and self._attempts.reports_pending <= INHERITED,
            isolation=prepared.isolation,
        )

    def _instance(self) -> Instance:
        meta = self._journal.meta
        stored = StoredIdentity(instance=meta("instance"), machine=meta("machine"), registered=meta("registered"))
        instance = instance_of(stored, machine=self._machine, new_id=self._new_id())
        if instance.copied:
            _log.warning(
                "the state directory was copied from another executor; registering as a new instance",
                instance=instance.id,
                copied_from_instance=stored.instance,
            )
        return instance
