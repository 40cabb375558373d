"""Operations.ListAudit: the log of operators' actions by pages; and what every action says of itself."""

from __future__ import annotations

from toban_coordinator.server.paging import below, limit_of, next_cursor
from toban_coordinator.store import audit
from toban_proto.v1 import coordinator_pb2 as pb
from toban_store.pool import Pool
from toban_store.tx import Row, autocommit
from toban_transport.convert import timestamp_to_pb

MAX_REASON = 1000


def clean_reason(text: str) -> str:
    """What an operator said, as PostgreSQL can store it."""
    return text.replace("\0", "�").strip()[:MAX_REASON]


async def list_audit(pool: Pool, request: pb.ListAuditRequest) -> pb.ListAuditResponse:
    """A page, newest first. Raises INVALID_ARGUMENT for a page that is none."""
    limit, start = limit_of(request.page), below(request.page.cursor)
    async with autocommit(pool) as t:
        found = await audit.page(t, below=start, limit=limit + 1)
    return pb.ListAuditResponse(
        entries=[_entry(row) for row in found[:limit]], next_cursor=next_cursor(found, limit, "id")
    )


def _entry(row: Row) -> pb.AuditEntry:
    return pb.AuditEntry(
        id=row["id"],
        at=timestamp_to_pb(row["at"]),
        actor=row["actor"],
        action=row["action"],
        target=row["target"],
        before_json=row["before"],
        after_json=row["after"],
        reason=row["reason"],
    )
