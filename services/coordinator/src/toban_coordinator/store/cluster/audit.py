"""What operators did: who, what, to what, before and after, and why. Rows are only ever added."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from toban_domain.access import MAX_REASON
from toban_domain.audit_chain import LinkText, Mark
from toban_observability.context import CALLER
from toban_store import queries
from toban_store.tx import FencedTx, Row, Tx

_sql = queries.load(__name__)
# Longer words are in no row; a pattern takes PostgreSQL time by its length.
MAX_WORD = 300
_SEQ_AND_LENGTH, _LENGTH = struct.Struct(">qi"), struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAction:
    """One action. `target` names what it was about ("setting leader_tick_seconds", "executor 5"); None: nothing to say before or after."""

    actor: str
    action: str
    target: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which actions; empty values are any. `until` is not included. A `target` such as `run 7` also finds rows about several runs.

    Actor, action and target find whole names (`user ada`, also typed as `user:ada`), and by one word the values with a word that begins with it.
    """

    actor: str = ""
    action: str = ""
    target: str = ""
    address: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def run(self) -> int | None:
        """The number of the run that `target` names."""
        found = re.fullmatch(r"run (\d{1,18})", _whole(self.target))
        return int(found[1]) if found else None

    def params(self) -> dict[str, Any]:
        """The values of the fragment `fits` (audit.sql)."""
        named = {name: getattr(self, name) for name in ("actor", "action", "target")}
        whole = {name: _whole(text) for name, text in named.items()}
        return {
            **asdict(self),
            **whole,
            **{f"{name}_word": _word(text) for name, text in named.items()},
            "run": self.run,
        }


@dataclass(frozen=True, slots=True)
class ChainPart:
    """Rows that follow `previous` in the chain, packed, and its ends. `stray`: the number of a row before its beginning, None as it should be;
    `complete`: no row comes after these."""

    previous: Mark
    anchor: Mark
    head: Mark
    rows: int
    page: bytes
    stray: int | None
    complete: bool

    def links(self) -> list[LinkText]:
        """The rows. Takes time for many: to be called in a thread."""
        found, at = [], 0
        while at < len(self.page):
            seq, length = _SEQ_AND_LENGTH.unpack_from(self.page, at)
            at += _SEQ_AND_LENGTH.size
            digest, at = self.page[at : at + length], at + length
            (length,) = _LENGTH.unpack_from(self.page, at)
            at += _LENGTH.size
            found.append(LinkText(seq, digest, self.page[at : at + length]))
            at += length
        return found


def clean_reason(text: str) -> str:
    """The reason that an operator gave, as PostgreSQL can store it."""
    return text.replace("\0", "�").strip()[:MAX_REASON]


async def note(
    t: Tx,
    actor: str,
    action: str,
    target: str,
    reason: str = "",
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Adds one action, as `AdminAction` has it, in the transaction that does it. The reason is cleaned."""
    params = {
        "actor": actor,
        "action": action,
        "target": target,
        "before": _json(before),
        "after": _json(after),
        "reason": clean_reason(reason),
        **caller_params(),
    }
    await t.execute(_sql.note, params)


async def note_all(t: Tx, actions: Sequence[AdminAction]) -> None:
    """Several at once, in their order."""
    await t.execute(_sql.note_all, {"actions": json.dumps([asdict(action) for action in actions]), **caller_params()})


def caller_params() -> dict[str, str]:
    """Where the call that this task serves comes from, for a statement that adds rows itself."""
    caller = CALLER.get()
    return {"address": caller.address, "service": caller.service}


async def page(t: Tx, wanted: AuditFilter, *, start: int, limit: int, oldest_first: bool = False) -> list[Row]:
    """Actions with an id below `start`, newest first, or above it, oldest first.

    `before` and `after` are JSON text, empty for none; `seq` is 0 for a row that is not chained yet.
    """
    params = {**wanted.params(), "start": start, "limit": limit}
    # Planned for the values: what is not asked for costs nothing.
    return await t.fetch_all(_sql.page_of_oldest if oldest_first else _sql.page, params, prepare=False)


async def chain(t: FencedTx, *, most: int) -> int:
    """Chains at most `most` rows; how many. A row that commits later than one with a higher id comes after it in the chain."""
    row = await t.fetch_one(_sql.chain, {"most": most})
    return int(row["chained"]) if row else 0


async def unchained(t: Tx) -> tuple[int, float]:
    """How many rows are not chained yet, and the age of the oldest one in seconds."""
    row = await t.fetch_one(_sql.unchained)
    return (int(row["rows"]), float(row["seconds"])) if row else (0, 0.0)


async def oldest_unchained(t: Tx) -> float | None:
    """The age of the oldest row that is not chained yet, seconds; None without one."""
    row = await t.fetch_one(_sql.oldest_unchained)
    return None if row is None else float(row["seconds"])


async def links(t: Tx, after: Mark, *, limit: int, max_bytes: int) -> ChainPart | None:
    """The chained rows behind `after`, or behind the anchor where that is later: at most `limit`, and beyond the first `max_bytes` of text. None when
    the ends of the chain were removed."""
    row = await t.fetch_one(_sql.links, {"after": after.seq, "limit": limit, "bytes": max_bytes})
    if row is None:
        return None
    anchor, head = (Mark(row[f"{end}_seq"], bytes(row[f"{end}_hash"])) for end in ("anchor", "head"))
    previous = anchor if anchor.seq > after.seq else after
    complete = row["found"] < limit and row["rows"] == row["found"]
    return ChainPart(previous, anchor, head, row["rows"], bytes(row["page"] or b""), row["stray"], complete)


async def has_ends(t: Tx) -> bool:
    """Whether the chain has its anchor and its head."""
    row = await t.fetch_one(_sql.has_ends)
    return bool(row and row["found"])


async def verdict(t: Tx) -> int:
    """How many problems the last verification of any leader found."""
    row = await t.fetch_one(_sql.verdict)
    return int(row["problems"]) if row else 0


async def note_verdict(t: FencedTx, found: int) -> None:
    """Keeps how many problems a verification found."""
    await t.execute(_sql.note_verdict, {"problems": found})


async def hash_at(t: Tx, seq: int) -> bytes | None:
    """The hash of a chained row; None when there is no such row."""
    row = await t.fetch_one(_sql.hash_at, {"seq": seq})
    return None if row is None else bytes(row["hash"])


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(dict(value))


def _whole(text: str) -> str:
    """A name as rows have it: `job:backup` is `job backup`."""
    return re.sub(r"^([A-Za-z]+):", r"\1 ", text)


def _word(text: str) -> str | None:
    """A pattern of PostgreSQL for values with a word that begins with `text`; None for a text of several words, and a longer one than names are.

    A number is whole: `executor-1` is not the beginning of `executor-10`.
    """
    if not text or len(text) > MAX_WORD or re.search(r"\s", text):
        return None
    quoted = re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", text)
    return f"(^|[^[:alnum:]]){quoted}" + ("([^0-9]|$)" if text[-1].isdigit() else "")
