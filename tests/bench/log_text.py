"""Text as services print it, for the benchmarks of logs: lines of about 110 bytes that zstd packs to about a fifth."""

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

MB = 1_000_000
_POOL_BYTES = 16 * MB
_METHODS = ("GET", "POST", "PUT", "DELETE")
_PATHS = ("items", "orders", "users", "invoices", "sessions", "reports")


@cache
def pool(kind: str = "plain", size: int = _POOL_BYTES) -> bytes:
    """`size` bytes of whole lines at least, the same ones each time. `kind`: plain, or json (each line with a level)."""
    random_of = random.Random(1)
    make = _json if kind == "json" else _plain
    lines: list[bytes] = []
    total = 0
    while total < size:
        lines.append(make(random_of, len(lines)))
        total += len(lines[-1])
    return b"".join(lines)


def write_text(path: Path, size: int, *, kind: str = "plain") -> int:
    """A file of `size` bytes at least; how many it has."""
    text, written = pool(kind), 0
    with path.open("wb") as file:
        while written < size:
            written += file.write(text)
    return written


def pieces(size: int, *, kind: str = "plain", piece: int = 64 * 1024) -> Iterator[bytes]:
    """`size` bytes at least, as reads of a pipe give them: cut anywhere."""
    text, given = pool(kind), 0
    while given < size:
        for start in range(0, len(text), piece):
            yield text[start : start + piece]
        given += len(text)


def _plain(random_of: random.Random, number: int) -> bytes:
    at = f"2026-11-21T11:{number // 60000 % 60:02d}:{number // 1000 % 60:02d}.{number % 1000:03d}Z"
    where = f"{random_of.choice(_METHODS)} /api/{random_of.choice(_PATHS)}/{random_of.randrange(100_000)}"
    took = random_of.expovariate(0.05)
    return f"{at} worker-{random_of.randrange(8)} request {random_of.getrandbits(48):012x} {where} status 200 in {took:.1f} ms\n".encode()


def _json(random_of: random.Random, number: int) -> bytes:
    level = "warning" if random_of.random() < 0.02 else "info"
    took = random_of.expovariate(0.05)
    path = f"/api/{random_of.choice(_PATHS)}/{random_of.randrange(100_000)}"
    return f'{{"time":{1_795_000_000_000 + number},"level":"{level}","msg":"request done","path":"{path}","ms":{took:.1f}}}\n'.encode()
