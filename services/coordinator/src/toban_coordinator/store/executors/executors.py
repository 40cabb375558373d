"""Executors: one row an incarnation, grants of leases, and what their heartbeats say (docs/fencing.md 3.5).

Grants are conditional on the executor's row and not on leadership, so every coordinator gives them. What only a leader may do takes a FencedTx.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from toban_coordinator.decide.executors.instance_secret import InstanceRow, same_secret, speaks_for
from toban_coordinator.ports.orders import ExecutorFacts
from toban_coordinator.store.runs import orphan_waits
from toban_domain.epoch import EpochProof
from toban_domain.executor_group import DEFAULT_GROUP
from toban_domain.job import SHARED, STEPS_LABEL
from toban_domain.lease import MAX_ECHO_LAG, ExecutorState
from toban_domain.settings import SETTINGS
from toban_observability.logs import get_logger
from toban_store import queries
from toban_store.errors import StoreError
from toban_store.pool import Pool
from toban_store.tx import FencedTx, Tx, autocommit, tx

STOPPED = "it was stopped in order"
"""The attested reason of an incarnation that ended by its operator's will; what else ends one is a loss."""
WITNESSED = "its witness found its processes gone"
"""The attested reason of an incarnation whose process died before its guards."""
MIN_SILENT_SECONDS = 3.0
"""How long an incarnation has sent nothing before another boot of its machine attests its end. It is three heartbeats at the default interval:
a clone of the machine, which has another boot id, starts beside an original that lives. A boot takes longer, and a lease ends later."""

_Q = queries.load(__name__)
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a new incarnation says of itself. `previous` names an incarnation that it attests to be dead, empty for none.

    `secret_hash` is that of the instance's secret; None when it has presented none.
    """

    incarnation: str
    instance: str
    node_id: str
    boot_id: str
    pid: int
    grpc_host: str
    grpc_port: int
    slots: int
    labels: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    previous: str = ""
    secret_hash: bytes | None = field(default=None, repr=False)
    group: str = DEFAULT_GROUP
    proves_log_key: bool = False
    isolation: str = SHARED
    isolation_details: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The new row. The last three are what a coordinator signs: `granted_at` is Unix time in seconds by PostgreSQL's clock."""

    worker_id: int
    lease_ms: int
    leader_epoch: int
    cluster_id: str
    granted_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """One heartbeat as far as the row is concerned. `echo` is the highest grant_seq that the executor has received, `nonce` came with the last
    grant that it received; 0 = none.

    The last three are None when the executor did not say: what it said before stays.
    """

    incarnation: str
    echo: int
    nonce: int = 0
    free_slots: int = 0
    load: float = 0.0
    draining: bool = False
    quarantined_outcomes: int = 0
    quarantined_chunks: int = 0
    # Processes of jobs refuse its signals.
    unreachable: bool = False
    clock_skew_seconds: float | None = None
    disk_free_bytes: int | None = None
    certificate_not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the row says after a heartbeat. `nonce` comes with a grant. Not `granted`: `grant_seq` is the current one, to be echoed; without
    `nonce_known` another copy of the incarnation has the lease, or PostgreSQL lost commits. `has_updates`: it has open orders or
    live attempts, so that `queued_orders.updates` may have something for it. `leader_epoch` is the leader row's, read in the same statement;
    `granted_at` is Unix time in seconds by PostgreSQL's clock."""

    incarnation: str
    worker_id: int
    node_id: str
    pid: int
    grpc_host: str
    grpc_port: int
    state: ExecutorState
    detach_mode: str
    grant_seq: int
    granted: bool
    nonce: int
    nonce_known: bool
    slots: int
    leader_epoch: int
    cluster_id: str
    granted_at: int
    has_updates: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One incarnation as an observer reads it. `last_heartbeat` only serves to see whether it moves."""

    cluster: str
    incarnation: str
    worker_id: int
    instance: str
    node_id: str
    state: ExecutorState
    grant_seq: int
    lease_ms: int
    attested_reason: str
    grpc_host: str
    grpc_port: int
    last_heartbeat: float


async def _as_it_is(_t: Tx, new: Registration) -> Registration:
    return new


async def register(
    pool: Pool,
    new: Registration,
    *,
    key_hash: bytes,
    lease_ms: int,
    admit: Callable[[Tx, Registration], Awaitable[Registration]] = _as_it_is,
) -> Registered | None:
    """Insert the row of a new incarnation; None when it is registered already.

    `admit` decides in the same transaction, and returns what is inserted; what it raises ends it. `lease_ms` counts when the setting
    executor_lease_seconds is not set, or not to a value that is allowed.
    """
    allowed = SETTINGS["executor_lease_seconds"]
    async with tx(pool) as t:
        admitted = await admit(t, new)
        params = {name: getattr(admitted, name) for name in admitted.__slots__} | {
            "labels": json.dumps(dict(admitted.labels)),
            "isolation_details": list(admitted.isolation_details),
            "key_hash": key_hash,
            "lease_ms": lease_ms,
            "least": allowed.minimum,
            "most": allowed.maximum,
        }
        row = await t.fetch_one(_Q.register, params)
    return None if row is None else Registered(**row)


async def of_instance(pool: Pool, instance: str) -> list[InstanceRow]:
    """The incarnations of an instance, in order of registration."""
    async with autocommit(pool) as t:
        rows = await t.fetch_all(_Q.of_instance, {"instance": instance, "incarnation": None})
    return [InstanceRow(**row) for row in rows]


async def same_instance(t: Tx, incarnation: str) -> frozenset[str]:
    """The incarnations that a registered one may speak for: its own, and those of its instance whose secret it has proved."""
    rows = await _instance_of(t, incarnation)
    own = next((row.secret_hash for row in rows if row.incarnation == incarnation), None)
    return speaks_for(rows, own) | {incarnation}


async def _instance_of(t: Tx, incarnation: str) -> list[InstanceRow]:
    rows = await t.fetch_all(_Q.of_instance, {"instance": None, "incarnation": incarnation})
    return [InstanceRow(**row) for row in rows]


class Attested(NamedTuple):
    """How many incarnations are attested as ended, and those of another boot that are not, because they have sent something a moment ago."""

    attested: int
    not_silent: Sequence[str]


async def attest(pool: Pool, new: Registration, *, silent: float = MIN_SILENT_SECONDS) -> Attested:
    """Note which earlier incarnations of a registered one are proven dead. The leader is woken to take what they held.

    Another boot id proves that only for one that has had no heartbeat and no grant for `silent` seconds, at most its lease, and never for one whose
    jobs are pods of a cluster.
    """
    names = ("incarnation", "instance", "node_id", "boot_id", "previous")
    in_cluster = new.labels.get(STEPS_LABEL) == "kubernetes"
    params = {name: getattr(new, name) for name in names} | {"silent": silent, "in_cluster": in_cluster}
    async with tx(pool) as t:
        proven = await same_instance(t, new.incarnation)
        row = await t.fetch_one(_Q.attest, params | {"proven": list(proven)})
        assert row is not None
        if row["attested"]:
            await t.notify("lease")
        if await orphan_waits.end_of_dead(t, **params, proven=list(proven)):
            await t.notify("reap")
    return Attested(**row)


async def attest_own(pool: Pool, incarnation: str, reason: str, *, nonce: int = 0) -> bool:
    """Note the end of an incarnation by its own word (STOPPED) or its witness's (WITNESSED); the leader is woken to close its row.

    False when its end is known, or when the nonce shows that a copy of it has the lease.
    """
    async with tx(pool) as t:
        count = await t.execute(_Q.attest_own, {"incarnation": incarnation, "reason": reason, "nonce": nonce})
        if count:
            await t.notify("lease")
        if await orphan_waits.end_of_own(t, incarnation, nonce=nonce):
            await t.notify("reap")
    return bool(count)


async def proves_secret(pool: Pool, incarnation: str, presented: bytes | None) -> bool:
    """Whether an incarnation has registered with the secret of this hash, or without any."""
    async with autocommit(pool) as t:
        rows = await _instance_of(t, incarnation)
    own = [row.secret_hash for row in rows if row.incarnation == incarnation]
    return any(stored is None or same_secret(stored, presented) for stored in own)


async def facts(pool: Pool, incarnation: str) -> ExecutorFacts | EpochProof:
    """What never changes of an incarnation. When there is no such incarnation: the leader's epoch in the database that says so."""
    async with autocommit(pool) as t:
        row = await t.fetch_one(_Q.facts, {"incarnation": incarnation})
    if row is None:
        raise LookupError("the leader row is missing: run the migrations")
    if row["key_hash"] is not None:
        return ExecutorFacts(
            incarnation=incarnation,
            group=row["executor_group"],
            key_hash=bytes(row["key_hash"]),
            secret_hash=bytes(row["secret_hash"]) if row["secret_hash"] is not None else None,
            proves_log_key=row["proves_log_key"],
        )
    return EpochProof(
        cluster_id=row["cluster_id"],
        epoch=row["epoch"],
        incarnation=incarnation,
        grant_seq=0,
        signed_at=row["server_time"],
    )


async def grant(pool: Pool, beats: Sequence[Beat]) -> dict[str, Grant]:
    """Grant all that may be granted, in one committed statement; an incarnation that is off or unknown is not in the answer.

    Those whose drain has ended are put `on` in a transaction of their own.
    """
    params = {
        "incarnations": [beat.incarnation for beat in beats],
        "echoes": [beat.echo for beat in beats],
        "free": [beat.free_slots for beat in beats],
        "loads": [beat.load for beat in beats],
        "draining": [beat.draining for beat in beats],
        "skews": [beat.clock_skew_seconds for beat in beats],
        "disks": [beat.disk_free_bytes for beat in beats],
        "certificates": [beat.certificate_not_after for beat in beats],
        "nonces": [beat.nonce for beat in beats],
        "quarantined_outcomes": [beat.quarantined_outcomes for beat in beats],
        "quarantined_chunks": [beat.quarantined_chunks for beat in beats],
        "unreachable": [beat.unreachable for beat in beats],
        "lag": MAX_ECHO_LAG,
    }
    async with autocommit(pool) as t:
        rows = await t.fetch_all(_Q.grant_all, params)
    undrained = [row["incarnation"] for row in rows if row.pop("may_resume")]
    grants = {row["incarnation"]: Grant(**{**row, "state": ExecutorState(row["state"])}) for row in rows}
    for incarnation in await _resume(pool, undrained):
        grants[incarnation] = replace(grants[incarnation], state=ExecutorState.ON)
    return grants


async def adopt_nonce(pool: Pool, incarnation: str, *, nonce: int, grant_seq: int) -> bool:
    """Take over a nonce that a coordinator signed with a later grant than the row has; False in a settled cluster. The next grant presents it."""
    params = {"incarnation": incarnation, "nonce": nonce, "grant_seq": grant_seq}
    async with autocommit(pool) as t:
        return await t.execute(_Q.adopt_nonce, params) == 1


async def _resume(pool: Pool, incarnations: Sequence[str]) -> list[str]:
    """draining -> on for those whose drain has ended; which."""
    if not incarnations:
        return []
    params = {"incarnations": list(incarnations)}
    try:
        async with tx(pool) as t:
            await lock(t, incarnations)
            return [row["incarnation"] for row in await t.fetch_all(_Q.resume, params)]
    except StoreError as error:
        # The grants stand; the next heartbeat resumes.
        _log.warning("executors stay draining for now", executors=len(incarnations), error=error.message)
        return []


async def lock(t: Tx, incarnations: Sequence[str]) -> None:
    """Lock these rows, in the order of ids: what follows in the transaction sees everything as it is while they are held."""
    await t.execute(_Q.lock, {"incarnations": list(incarnations)})


async def observe(pool: Pool) -> list[Observed]:
    """Every incarnation that is not off, as one statement shows them."""
    async with autocommit(pool) as t:
        rows = await t.fetch_all(_Q.observe)
    return [Observed(**{**row, "state": ExecutorState(row["state"])}) for row in rows]


async def detach(t: FencedTx, incarnations: Sequence[str], *, mode: str, reason: str = "") -> list[int]:
    """No new work for these; the worker ids that were detached. `mode` is '' without a request; `reason` goes to the audit log."""
    # After a wait for a row a statement still sees the runs of others as they were before it: a confirmation that came meanwhile counts.
    await lock(t, incarnations)
    rows = await t.fetch_all(_Q.detach, {"incarnations": list(incarnations), "mode": mode})
    if reason:
        for row in rows:
            await t.execute(_Q.note_detach, {"target": f"executor {row['worker_id']}", "reason": reason})
    return [row["worker_id"] for row in rows]


async def rejoin(t: FencedTx, incarnations: Sequence[str]) -> list[int]:
    """Back to work after a detach that no operator asked for; the worker ids."""
    params = {"incarnations": list(incarnations)}
    await lock(t, incarnations)
    rows = await t.fetch_all(_Q.rejoin, params)
    return [row["worker_id"] for row in rows]


async def told_orders(t: Tx) -> list[int]:
    """The open orders that their executors have been told; their ids."""
    return [row["id"] for row in await t.fetch_all(_Q.told_orders)]


async def cut_silent(t: FencedTx, orders: Sequence[int]) -> list[int]:
    """No more grants for executors with one of these orders, if it is still open; the worker ids."""
    # As for `detach`.
    await t.execute(_Q.lock_ordered, {"orders": list(orders)})
    rows = await t.fetch_all(_Q.cut_silent, {"orders": list(orders)})
    return [row["worker_id"] for row in rows]
