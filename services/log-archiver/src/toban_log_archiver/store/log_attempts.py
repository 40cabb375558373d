"""Tokens that have sent log lines: where they are, and whether their last sequence number is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from operator import attrgetter

from toban_log_archiver.decide.stored_chunks import TimeSpan, TokenPlace, TokenRow
from toban_store.queries import load
from toban_store.tx import Tx

_Q = load(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenNote:
    """A token that sends; `last_seq` once it is known that no line comes after it (0 = it had no output)."""

    log_day: date
    run_id: int
    token: int
    incarnation: str
    last_seq: int | None = None


async def note(t: Tx, notes: Iterable[TokenNote]) -> None:
    """Makes or seals tokens, in key order so that two archivers do not deadlock. Several notes of one token count as one."""
    by_key: dict[tuple[int, int], TokenNote] = {}
    for one in notes:
        held = by_key.get((one.run_id, one.token))
        if held is None or held.last_seq is None:
            by_key[(one.run_id, one.token)] = one
    if not by_key:
        return
    ordered = sorted(by_key.values(), key=attrgetter("run_id", "token"))
    columns = TokenNote.__dataclass_fields__
    await t.execute(_Q.note, {name: [getattr(one, name) for one in ordered] for name in columns})


async def of_run(t: Tx, run_id: int) -> list[TokenRow]:
    """Every token of a run that this schema knows, in order."""
    return [
        TokenRow(
            place=TokenPlace(log_day=row["log_day"], run_id=row["run_id"], token=row["token"]),
            last_seq=row["last_seq"],
            sealed_seconds=row["sealed_seconds"],
        )
        for row in await t.fetch_all(_Q.of_run, {"run_id": run_id})
    ]


async def touched(t: Tx, run_ids: Sequence[int], *, streams: Sequence[int], span: TimeSpan) -> list[TokenPlace]:
    """Tokens of these runs with a chunk of these streams within `span` in the database, by run and token."""
    params = {"run_ids": list(run_ids), "streams": list(streams), "since": span.since, "until": span.until}
    return [TokenPlace(**row) for row in await t.fetch_all(_Q.touched, params)]
