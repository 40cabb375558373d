"""Inputs that are nearly right: sound samples with small changes, and values that programs trip over."""

import copy
import random
from typing import Any

LONG = "a" * 3000
LEAVES: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *(
        "",
        " ",
        "0",
        "-1",
        "\0",
        "\ud800",
        "\u202e",
        "\x1b[31m",
        "é" * 60,
        LONG,
        "../../etc/passwd",
        "a/b",
        "%2e%2e",
        "'; --",
    ),
    *(
        "null",
        "~",
        "yes",
        "${{ payload.x }}",
        "${{",
        "$${{ x }}",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "24:00",
        "P1D",
    ),
    *(
        "(a+)+$",
        "(?=(a+))\\1+b",
        "[",
        "http://127.0.0.1:1/",
        "file:///etc/passwd",
        "spiffe://toban.internal/coordinator",
    ),
    *(None, True, False, [], {}, [[]], {"": ""}, [None] * 50, {"a": {"b": {"c": {}}}}),
)
TOKENS = (
    *(
        b"\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"&a ",
        b"*a",
        b"!!python/object:os.system ",
        b"<<: ",
        b"---\n",
        b"\t",
        b"\r\n",
        b"#",
        b"%",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"'",
        b"\\",
        b": ",
        b"- ",
        b"|\n",
        b">-\n",
        b"@reboot",
        b"*/0",
        b"L",
        b"W",
        b"1-0",
        b"60",
        b"H/7",
    ),
    *(b"99999999999999999999", b"1e400", b"\xe2\x80\xae", b"CRON_TZ=", b"= ", b"TZ=Nowhere/Land\n"),
)


def changed_bytes(rng: random.Random, samples: list[bytes], *, most: int) -> bytes:
    """One of the samples with up to six changes, of at most `most` bytes."""
    data = bytearray(rng.choice(samples))
    for _ in range(rng.randrange(7)):
        at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        end = min(end, at + 200)
        match rng.randrange(6):
            case 0:
                data[at:at] = rng.choice(TOKENS)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * rng.randint(1, 8)
            case 3:
                data[at:end] = rng.randbytes(rng.randint(0, 12))
            case 4:
                other = rng.choice(samples)
                first = rng.randint(0, len(other))
                data[at:end] = other[first : first + rng.randint(0, 200)]
            case 5 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
    return bytes(data[:most])


def changed_tree(rng: random.Random, value: Any) -> Any:
    """A copy of a JSON value with up to four changes: other leaves, keys that are gone, renamed, or there too often."""
    tree = copy.deepcopy(value)
    for _ in range(rng.randrange(5)):
        place, key = _place(rng, tree)
        if place is None:
            return rng.choice(LEAVES)
        match rng.randrange(5):
            case 0 | 1:
                place[key] = copy.deepcopy(rng.choice(LEAVES))
            case 2:
                del place[key]
            case 3 if isinstance(place, dict):
                place[rng.choice((f"{key}s", f" {key}", LONG, "", "x-y"))] = copy.deepcopy(place[key])
            case _:
                place[key] = [copy.deepcopy(place[key]) for _ in range(rng.choice((0, 1, 3, 60)))]
    return tree


def _place(rng: random.Random, tree: Any) -> tuple[Any, Any]:
    """A container of the tree and a key of it; (None, None) in a tree without any."""
    at, found = tree, (None, None)
    while isinstance(at, dict | list) and at:
        key = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
        found, at = (at, key), at[key]
        if rng.random() < 0.3:
            break
    return found
