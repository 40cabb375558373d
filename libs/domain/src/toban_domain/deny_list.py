"""Serial numbers of certificates that are refused before their end. Pure."""

from __future__ import annotations

from string import hexdigits

DENIED = "denied"
"""The file beside tls.crt: a serial number a line, in hexadecimal; `#` begins a comment."""


def parse_denied(text: str) -> frozenset[int]:
    """The serial numbers in a deny-list. Raises ValueError naming the line."""
    found = set()
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        try:
            found.add(serial_number(entry))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return frozenset(found)


def serial_number(text: str) -> int:
    """A serial number as `openssl x509 -serial` and /healthz show it: hexadecimal, colons between bytes are fine. Raises ValueError."""
    digits = text.replace(":", "")
    if not digits or len(digits) > 40 or not set(digits) <= set(hexdigits):
        raise ValueError(f"{text[:60]!r} is no serial number; write the hexadecimal number of /healthz")
    return int(digits, 16)
