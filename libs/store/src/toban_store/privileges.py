"""What each role may do: one list, granted after the migrations and compared by `toban doctor`.

Every table, view, sequence and function of both schemas has a line here; a test fails for one that has none, and for a right that no statement
of its service needs. A right that a new release does not need any more stays for one release: old code runs on the new schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from toban_store import queries
from toban_store.roles import COORDINATOR, EMIT, LOG_ARCHIVER, READONLY

_sql = queries.load(__name__)

SERVICES: Mapping[str, str] = {"scheduler": COORDINATOR, "logs": LOG_ARCHIVER}
"""The role that works with each schema."""

TABLES: Mapping[str, str] = {
    "scheduler.access_rules": "SELECT INSERT DELETE",
    # The audit: appended, and nothing of a row but what happened is for the writer to choose.
    "scheduler.admin_action_log": "SELECT INSERT(actor,action,target,before,after,reason,address,service)",
    "scheduler.api_tokens": "SELECT INSERT UPDATE DELETE",
    "scheduler.audit_chain": "SELECT",
    "scheduler.audit_verdict": "SELECT INSERT UPDATE",
    "scheduler.bootstrap_link": "SELECT INSERT UPDATE DELETE",
    "scheduler.breakers": "SELECT INSERT UPDATE DELETE",
    "scheduler.coordinators": "SELECT INSERT UPDATE DELETE",
    "scheduler.epoch_claims": "SELECT INSERT UPDATE DELETE",
    "scheduler.event_keys": "SELECT INSERT UPDATE DELETE",
    "scheduler.event_runs": "SELECT INSERT UPDATE DELETE",
    "scheduler.event_triggers": "SELECT INSERT UPDATE DELETE",
    "scheduler.events": "SELECT INSERT UPDATE DELETE",
    "scheduler.events_history": "SELECT INSERT",
    "scheduler.executor_drains": "SELECT INSERT UPDATE DELETE",
    "scheduler.executor_certificates": "SELECT INSERT DELETE",
    "scheduler.executor_groups": "SELECT INSERT UPDATE DELETE",
    "scheduler.executor_instances": "SELECT INSERT UPDATE DELETE",
    "scheduler.executor_invites": "SELECT INSERT UPDATE DELETE",
    "scheduler.executor_orders": "SELECT INSERT UPDATE DELETE",
    "scheduler.executors": "SELECT INSERT UPDATE DELETE",
    "scheduler.fire_ledger": "SELECT INSERT UPDATE DELETE",
    "scheduler.group_members": "SELECT INSERT UPDATE DELETE",
    "scheduler.hooks": "SELECT INSERT UPDATE DELETE",
    "scheduler.job_attempts": "SELECT INSERT UPDATE",
    "scheduler.job_definition_versions": "SELECT INSERT",
    "scheduler.job_definitions": "SELECT INSERT UPDATE",
    "scheduler.job_events": "SELECT INSERT",
    "scheduler.job_runs": "SELECT",
    "scheduler.job_silences": "SELECT INSERT DELETE",
    "scheduler.job_successes": "SELECT INSERT UPDATE",
    "scheduler.leader": "SELECT UPDATE",
    "scheduler.leader_beat": "SELECT UPDATE",
    "scheduler.limit_holds": "SELECT INSERT UPDATE DELETE",
    "scheduler.limit_overrides": "SELECT INSERT DELETE",
    "scheduler.limit_signals": "SELECT INSERT UPDATE DELETE",
    "scheduler.limit_starts": "SELECT INSERT DELETE",
    "scheduler.limits": "SELECT INSERT UPDATE DELETE",
    "scheduler.oidc_nonce_key": "SELECT",
    "scheduler.oidc_nonces_used": "SELECT INSERT UPDATE DELETE",
    "scheduler.orphan_results": "SELECT INSERT UPDATE DELETE",
    "scheduler.run_events": "SELECT",
    "scheduler.run_idempotency": "SELECT INSERT UPDATE DELETE",
    "scheduler.run_slots": "SELECT INSERT UPDATE DELETE",
    "scheduler.run_transitions": "SELECT",
    "scheduler.runs_history": "SELECT INSERT",
    "scheduler.runs_live": "SELECT INSERT UPDATE DELETE",
    "scheduler.schedules": "SELECT INSERT UPDATE DELETE",
    "scheduler.schedules_deleted": "SELECT INSERT UPDATE DELETE",
    "scheduler.secrets": "SELECT INSERT UPDATE DELETE",
    "scheduler.settings": "SELECT INSERT UPDATE",
    "scheduler.sign_in_failures": "SELECT INSERT UPDATE DELETE",
    "scheduler.succeeded_keys": "SELECT INSERT",
    "scheduler.unresolved_attempts": "SELECT INSERT UPDATE DELETE",
    "scheduler.user_groups": "SELECT INSERT DELETE",
    "scheduler.unlinked_identities": "SELECT INSERT UPDATE DELETE",
    "scheduler.user_identities": "SELECT INSERT UPDATE DELETE",
    "scheduler.user_sessions": "SELECT INSERT UPDATE DELETE",
    "scheduler.users": "SELECT INSERT UPDATE DELETE",
    "scheduler.webhook_deliveries": "SELECT INSERT UPDATE DELETE",
    "scheduler.webhook_targets": "SELECT INSERT UPDATE DELETE",
    "logs.archive_lease": "SELECT UPDATE",
    "logs.chunks": "SELECT INSERT",
    "logs.manifests": "SELECT INSERT DELETE",
    "logs.objects": "SELECT INSERT UPDATE DELETE",
    "logs.tokens": "SELECT INSERT UPDATE",
}
"""Rights of the schema's service. Those on a partitioned table are not rights on its partitions. A row lock (FOR UPDATE, FOR SHARE) needs UPDATE."""

SEQUENCES: Mapping[str, str] = {"scheduler.run_id_seq": COORDINATOR, "scheduler.worker_id_seq": COORDINATOR}
"""Who draws from each sequence that is not a table's identity."""

FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "scheduler.chain_audit(integer)": (COORDINATOR,),
    "scheduler.check_transition()": (),
    "scheduler.current_database_oid()": (COORDINATOR,),
    "scheduler.current_system_id()": (COORDINATOR,),
    "scheduler.current_timeline()": (COORDINATOR,),
    "scheduler.keep_audit()": (),
    "scheduler.labelled_definitions(jsonb)": (COORDINATOR,),
    "scheduler.drop_partition(date)": (COORDINATOR,),
    "scheduler.emit_event(text,jsonb,text)": (EMIT,),
    "scheduler.ends_after_failures(bigint[],text[])": (COORDINATOR,),
    "scheduler.ensure_partitions(date,date)": (COORDINATOR,),
    "scheduler.forget_audit(integer,integer)": (COORDINATOR,),
    "scheduler.is_settled(scheduler.leader)": (COORDINATOR,),
    "scheduler.refuse_change()": (),
    "logs.drop_archived(date,bigint)": (LOG_ARCHIVER,),
    "logs.ensure_partitions(date,date)": (LOG_ARCHIVER,),
    "logs.forget_day(date,bigint)": (LOG_ARCHIVER,),
    "logs.uncovered(date)": (),
}
"""The roles that call each function; none where triggers or other functions use it."""

HIDDEN: Mapping[str, tuple[str, ...]] = {
    "scheduler.executors": ("key_hash", "secret_hash", "nonce", "nonces"),
    "scheduler.users": ("password_hash",),
    "scheduler.user_sessions": ("secret_hash",),
    "scheduler.api_tokens": ("secret_hash",),
    "scheduler.bootstrap_link": ("secret_hash",),
    "scheduler.executor_invites": ("secret_hash",),
    "scheduler.secrets": ("nonce", "ciphertext"),
    "scheduler.oidc_nonce_key": ("key",),
    "scheduler.oidc_nonces_used": ("nonce_hash",),
    "logs.chunks": ("data",),
}
"""Columns that toban_readonly does not see: what executors and people prove themselves by, encrypted secrets, and the output of jobs."""

MIGRATIONS = "public.toban_migrations"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One privilege of one role on an object, or on a column of it. `kind` is SCHEMA, TABLE, SEQUENCE or FUNCTION as GRANT has it."""

    kind: str
    name: str
    role: str
    privilege: str
    column: str = ""

    @property
    def label(self) -> str:
        """`UPDATE of scheduler.leader`."""
        return f"{self.privilege} of {self.name}{f' ({self.column})' if self.column else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What is in the database: roles of ours, columns by table, sequences, functions, and the rights on them of these roles and PUBLIC."""

    roles: frozenset[str]
    tables: Mapping[str, tuple[str, ...]]
    sequences: frozenset[str]
    functions: frozenset[str]
    schemas: frozenset[str]
    rights: frozenset[Right]


def wanted(found: Catalogue) -> frozenset[Right]:
    """Every right of the list for objects and roles that exist."""
    rights = [*_of_schemas(found), *_of_tables(found)]
    rights += [Right("SEQUENCE", name, SEQUENCES[name], "USAGE") for name in found.sequences & SEQUENCES.keys()]
    for name in found.functions & FUNCTIONS.keys():
        rights += [Right("FUNCTION", name, role, "EXECUTE") for role in FUNCTIONS[name]]
    return frozenset(right for right in rights if right.role in found.roles)


def undecided(found: Catalogue) -> list[str]:
    """Objects without a line in the list."""
    decided = {*TABLES, *SEQUENCES, *FUNCTIONS, MIGRATIONS}
    return sorted({*found.tables, *found.sequences, *found.functions} - decided)


def apply(connection: psycopg.Connection[Any]) -> None:
    """Grants and revokes what differs from the list; rights of other roles, and objects that are not in the list, stay as they are."""
    found = read(connection)
    goal = wanted(found)
    known = {*SERVICES, *TABLES, *SEQUENCES, *FUNCTIONS, MIGRATIONS}
    for statement in _statements("REVOKE", "FROM", [right for right in found.rights - goal if right.name in known]):
        connection.execute(statement)
    # Read again: to revoke a right on a table takes the same right on its columns, too.
    for statement in _statements("GRANT", "TO", goal - read(connection).rights):
        connection.execute(statement)


def read(connection: psycopg.Connection[Any]) -> Catalogue:
    """The catalogue as it is now."""
    roles = [*{*SERVICES.values(), READONLY, EMIT}]
    row = connection.execute(_sql.catalogue.encode(), {"roles": roles}).fetchone()
    assert row is not None, "the statement aggregates"
    found_roles, schemas, tables, sequences, functions, rights = row
    return Catalogue(
        roles=frozenset(found_roles),
        schemas=frozenset(schemas),
        tables={name: tuple(columns) for name, columns in tables.items()},
        sequences=frozenset(sequences),
        functions=frozenset(functions),
        rights=frozenset(Right(*one) for one in rights),
    )


def _of_schemas(found: Catalogue) -> Iterable[Right]:
    for schema in found.schemas & SERVICES.keys():
        for role in (SERVICES[schema], READONLY, *([EMIT] if schema == "scheduler" else [])):
            yield Right("SCHEMA", schema, role, "USAGE")


def _of_tables(found: Catalogue) -> Iterable[Right]:
    for name in found.tables.keys() & TABLES.keys():
        # An older state of the schema may lack a column.
        columns = {"", *found.tables[name]}
        yield from (right for right in _service_rights(name) if right.column in columns)
        hidden = HIDDEN.get(name, ())
        seen = [column for column in found.tables[name] if column not in hidden] if hidden else [""]
        yield from (Right("TABLE", name, READONLY, "SELECT", column) for column in seen)
    if MIGRATIONS in found.tables:
        yield from (Right("TABLE", MIGRATIONS, role, "SELECT") for role in (*SERVICES.values(), READONLY))


def _service_rights(name: str) -> Iterable[Right]:
    role = SERVICES[name.partition(".")[0]]
    for entry in TABLES[name].split():
        privilege, _, columns = entry.rstrip(")").partition("(")
        yield from (Right("TABLE", name, role, privilege, column) for column in columns.split(","))


def _statements(verb: LiteralString, preposition: LiteralString, rights: Iterable[Right]) -> Iterable[sql.Composed]:
    """One statement for each object and role."""
    for (kind, name, role), group in groupby(sorted(rights), key=lambda right: (right.kind, right.name, right.role)):
        columns = [(right.privilege, sql.Identifier(right.column) if right.column else None) for right in group]
        privileges = [
            sql.SQL("{} ({})").format(_trusted(privilege), column) if column else _trusted(privilege)
            for privilege, column in columns
        ]
        yield sql.SQL("{} {} ON {} {} {} {}").format(
            sql.SQL(verb),
            sql.SQL(", ").join(privileges),
            _trusted(kind),
            _trusted(name),
            sql.SQL(preposition),
            sql.SQL("PUBLIC") if role == "public" else sql.Identifier(role),
        )


def _trusted(text: str) -> sql.SQL:
    # Names of the list above and words of PostgreSQL's own: a signature of a function is no identifier.
    return sql.SQL(text)
