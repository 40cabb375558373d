"""Targets within this process: what files, people and jobs give, and the code that reads it. A refusal is an error of ours; all else fails."""

import io
import json
import random
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import yaml
import zstandard
from mutations import changed_bytes, changed_tree

from toban_cli.importers.crontab.convert import Options, convert
from toban_cli.manifest_files import read_documents
from toban_domain.errors import TobanError
from toban_domain.log_block import STDOUT, LogBlock
from toban_domain.outcome import AttemptKey
from toban_domain.schedule import RuleSpec
from toban_executor.decide import job_protocol
from toban_executor.decide.guard_types import AttemptStart, FreezeTurn, JobNote
from toban_executor.decide.models import AttemptEnd
from toban_executor.guard.protocol import UNREADABLE, decode_report, encode_block, encode_report
from toban_log_archiver.adapters.chunk_codec import LogLinesCodec
from toban_log_archiver.app.append_session import SentChunk, checked
from toban_log_archiver.decide.chunk_validation import ChunkInvalid
from toban_log_archiver.decide.line import Line
from toban_manifests.payload_schema import CHECKED_HERE, EXPLAINED_HERE, PayloadSchema
from toban_manifests.read import Document, find_problems
from toban_schedule.rule import Rule, problems
from toban_schedule.spec import ScheduleError

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
_KEY = AttemptKey(7, (1 << 40) | 3)

Case = Callable[[random.Random], bool]
"""One case: True when the input was taken, False when it was refused in order. Raises whatever else happens."""


def _examples() -> list[bytes]:
    files = [
        file
        for file in sorted((ROOT / "examples").rglob("*.yaml"))
        if "kind: Job" in file.read_text() or "kind: Sch" in file.read_text()
    ]
    return [file.read_bytes() for file in files]


MANIFESTS = _examples()
BODIES = [body for text in MANIFESTS for body in yaml.safe_load_all(text) if isinstance(body, dict)]
CRONTAB = b"""SHELL=/bin/bash
MAILTO="ops@example.com"
CRON_TZ=Europe/Berlin
*/15 8-18 * * 1-5 /usr/bin/report --day \\%F
0 3 1,15 * * root nice -n 10 sh -c 'cd /srv && ./backup' # nightly
@daily find /tmp -mtime +7 -delete
30 2 L * * /bin/true
5 4 * * sun PATH=/opt:/bin job one two
"""
CRONS = [
    b"*/5 * * * *",
    b"0 3 L * *",
    b"15 10 ? * MON#2",
    b"H H(1-4) * * *",
    b"0 0 15W * *",
    b"0 0 12 * * MON-FRI",
    b"59 23 31 12 *",
]
SCHEMAS = [
    {
        "type": "object",
        "properties": {"day": {"type": "string", "pattern": "^[0-9-]{10}$"}},
        "required": ["day"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 5}},
        "$defs": {"n": {"type": "integer"}},
    },
    {
        "anyOf": [{"type": "object", "minProperties": 1}, {"enum": [{"a": 1}]}],
        "not": {"required": ["b"]},
        "format": "date",
    },
]
PAYLOADS = [{"day": "2026-03-29"}, {"n": [1, 2, 3]}, {"a": 1, "b": [{"c": None}]}, {}]
REQUESTS = [
    b'{"op":"progress","done":3,"total":10,"summary":"x","eta_seconds":5}',
    b'{"op":"checkpoint","value":{"page":7}}',
    b'{"op":"output","value":[1,2]}',
    b"::progress 40::",
    b'::output {"rows": 4}::',
]
CODEC = LogLinesCodec()
REPORTS = [
    encode_report(AttemptStart(key=_KEY, pid=4, started_ns=5)),
    encode_report(FreezeTurn(key=_KEY, frozen=True, seconds=1.5, at_ns=6)),
    encode_report(JobNote(key=_KEY, kind="progress", text="{}", number=1)),
    encode_report(
        AttemptEnd(
            key=_KEY, cause="", reason="", finished_ns=9, exit_code=0, result_json="{}", left_out={"rate": (1, 2)}
        )
    ),
    encode_block(LogBlock(stream=STDOUT, partial=False, at_ns=7, seq_from=1, lines=1, text=b"hello\n")),
]


def manifest(rng: random.Random) -> bool:
    """A file of manifests."""
    text = changed_bytes(rng, MANIFESTS, most=16_384)
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text))
    try:
        return not find_problems(read_documents(["-"]), check_rule=problems)[1]
    except TobanError:
        return False
    finally:
        sys.stdin = stdin


def document(rng: random.Random) -> bool:
    """One manifest as a structure, as an API gets it."""
    return not find_problems([Document("x", changed_tree(rng, rng.choice(BODIES)))], check_rule=problems)[1]


def cron(rng: random.Random) -> bool:
    """A schedule's rule and its next slots."""
    text = changed_bytes(rng, CRONS, most=300).decode("utf-8", "replace")
    zone = rng.choice(("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Nuuk", "Nowhere/Land"))
    try:
        rule = Rule.of(RuleSpec(cron=text, timezone=zone))
    except ScheduleError:
        return False
    after = NOW
    for _ in range(5):
        slot = rule.next_slot(after)
        if slot is None:
            break
        assert slot > after
        after = slot
    return True


def crontab(rng: random.Random) -> bool:
    """A crontab to import."""
    done = convert(changed_bytes(rng, [CRONTAB, *CRONS], most=8192), Options(source="x", accounts=("root",)))
    return bool(done.documents)


def schema(rng: random.Random) -> bool:
    """A payload's schema, and a payload that is checked in the event loop."""
    source, payload = changed_tree(rng, rng.choice(SCHEMAS)), changed_tree(rng, rng.choice(PAYLOADS))
    try:
        text = json.dumps(payload, ensure_ascii=False, allow_nan=False)
        (text + json.dumps(source, ensure_ascii=False, allow_nan=False)).encode()
        known = PayloadSchema(source if isinstance(source, dict) else {"const": source})
    except (ValueError, TobanError):
        # JSON carries neither NaN nor half a character, and manifests take neither.
        return False
    steps = known.steps(payload, len(text))
    if steps <= CHECKED_HERE and not known.is_valid(payload) and steps <= EXPLAINED_HERE:
        known.explain(payload, every=True)
    return True


def chunk(rng: random.Random) -> bool:
    """A chunk of output lines as an executor sends it."""
    lines = [
        Line(5 + at, 1_700_000_000_000_000_000 + at, 1, rng.randbytes(20), False, "info" if at % 2 else "", 0, "")
        for at in range(3)
    ]
    data = CODEC.encode(lines)
    raw = zstandard.compress(changed_bytes(rng, [zstandard.decompress(data)], most=8192))
    sent = rng.choice((data, raw, changed_bytes(rng, [data, raw], most=8192)))
    stream, first, last, count = (rng.choice((value,) * 9 + (0, -1, 2**31)) for value in (1, 5, 7, 3))
    try:
        claimed = SentChunk(key=_KEY, stream=stream, seq_from=first, seq_to=last, line_count=count, data=sent)
        checked(CODEC, claimed, date(2026, 3, 29))
    except ChunkInvalid:
        return False
    return True


def report(rng: random.Random) -> bool:
    """A message of a guard, as a file keeps it over a crash and another release."""
    try:
        decode_report(changed_bytes(rng, REPORTS, most=8192))
    except UNREADABLE:
        return False
    return True


def request(rng: random.Random) -> bool:
    """What a job sends on its socket, or prints as a marker."""
    line = changed_bytes(rng, REQUESTS, most=8192)
    job_protocol.parse_marker(line, NOW)
    try:
        job_protocol.parse(line, NOW)
    except job_protocol.ProtocolError:
        return False
    return True


TARGETS: dict[str, Case] = {
    one.__name__: one for one in (manifest, document, cron, crontab, schema, chunk, report, request)
}
