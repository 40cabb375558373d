"""Masks secret values in output: as they are, and as base64, URL-encoded or JSON text.

Bytes come in pieces of any size, and a value may lie across them: the possible beginning of a value is held back until more bytes arrive.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MASK = b"***"
MIN_BYTES = 4
"""Shorter values are not looked for: they would be found everywhere."""
_MIN_LINE = 8


def secret_values(names: Iterable[str], *, env: Mapping[str, str], payload_json: str) -> tuple[set[str], list[str]]:
    """The values of these variables and top-level payload keys, and the names whose value is too short to be looked for.

    Of a payload value that is a list or mapping every text and number in it counts.
    """
    payload = _mapping(payload_json)
    values: set[str] = set()
    short: list[str] = []
    for name in names:
        found = [env[name]] if name in env else []
        found += _leaves(payload.get(name))
        values.update(value for value in found if len(_bytes(value)) >= MIN_BYTES)
        if any(0 < len(_bytes(value)) < MIN_BYTES for value in found):
            short.append(name)
    return values, short


def patterns(values: Iterable[str]) -> list[bytes]:
    """Every form in which the values are looked for. Of a text of several lines each line counts by itself as well."""
    forms: set[bytes] = set()
    for value in values:
        lines = {line.strip() for line in value.splitlines() if len(line.strip()) >= _MIN_LINE}
        for text in {value, value.strip(), *lines}:
            forms.update(_forms(text))
    return sorted(form for form in forms if len(form) >= MIN_BYTES)


def byte_patterns(values: Iterable[bytes]) -> list[bytes]:
    """As `patterns`, of values that need not be text; a line ending at the end of a value is not part of it."""
    forms: set[bytes] = set()
    for value in values:
        try:
            forms.update(patterns([value.decode()]))
        except UnicodeDecodeError:
            forms.update(_byte_forms(value), _byte_forms(value.strip()))
    return sorted(form for form in forms if len(form) >= MIN_BYTES)


def masked(text: str, forms: Iterable[bytes]) -> str:
    """A whole text without the values."""
    redactor = Redactor(forms)
    return (redactor.feed(_bytes(text)) + redactor.finish()).decode(errors="replace")


class Redactor:
    """One stream of bytes. `count` is how often something was replaced."""

    def __init__(self, forms: Iterable[bytes]) -> None:
        self._forms = tuple(forms)
        self._longest = max((len(form) for form in self._forms), default=0)
        self._held = b""
        # So many bytes of what is held belong to a value whose mask is out already.
        self._hidden = 0
        self.count = 0

    def feed(self, data: bytes) -> bytes:
        """What may go on of the bytes so far."""
        if not self._forms:
            return data
        if self._held:
            data, self._held = self._held + data, b""
        return self._pass(data, self._undecided(data))

    def finish(self) -> bytes:
        """The stream has ended: what was held back."""
        data, self._held = self._held, b""
        return self._pass(data, len(data))

    def _pass(self, data: bytes, cut: int) -> bytes:
        """The bytes before `cut`, masked; the rest is held."""
        hidden, self._hidden = self._hidden, 0
        if not hidden and not any(form in data for form in self._forms):
            self._held = data[cut:]
            return data[:cut]
        out: list[bytes] = []
        at = hidden
        for start, end in self._found(data, hidden):
            if start >= cut:
                break
            if start >= hidden:
                out += (data[at:start], MASK)
                self.count += 1
            at = max(at, end)
        out.append(data[at:cut])
        self._held, self._hidden = data[cut:], max(0, at - cut)
        return b"".join(out)

    def _found(self, data: bytes, hidden: int) -> Iterator[tuple[int, int]]:
        """Where values lie, in order; those that overlap are one. The first `hidden` bytes are one as well."""
        places = [(0, hidden)] if hidden else []
        for form in self._forms:
            at = data.find(form)
            while at >= 0:
                places.append((at, at + len(form)))
                at = data.find(form, at + 1)
        places.sort()
        start, end = -1, -1
        for left, right in places:
            if left < end:
                end = max(end, right)
                continue
            if end > 0:
                yield start, end
            start, end = left, right
        if end > 0:
            yield start, end

    def _undecided(self, data: bytes) -> int:
        """From where on the end of `data` could be the beginning of a value."""
        first = max(0, len(data) - self._longest + 1)
        best = len(data)
        for form in self._forms:
            at = data.find(form[:1], max(first, len(data) - len(form) + 1), best)
            while at >= 0:
                if form.startswith(data[at:]):
                    best = at
                    break
                at = data.find(form[:1], at + 1, best)
        return best


def _forms(text: str) -> Iterator[bytes]:
    raw = _bytes(text)
    if len(raw) < MIN_BYTES:
        return
    yield from _byte_forms(raw)
    yield json.dumps(text)[1:-1].encode()
    yield _bytes(json.dumps(text, ensure_ascii=False)[1:-1])


def _byte_forms(raw: bytes) -> Iterator[bytes]:
    if len(raw) < MIN_BYTES:
        return
    yield raw
    for encoded in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield encoded.encode()
        yield _lower_escapes(encoded).encode()
    for skip in range(3):
        first, bits = (8 * skip + 5) // 6, 8 * (skip + len(raw))
        whole = base64.b64encode(b"\0" * skip + raw)
        line = base64.b64encode(b"\0" * skip + raw + b"\n")
        # The characters whose bits all come from the value; at the end of a text or a line also the last one, which has a part of them.
        for piece in (
            whole[first : bits // 6],
            whole[first : -(-bits // 6)],
            whole[first:],
            line[first : -(-bits // 6)],
        ):
            yield piece
            yield piece.translate(_URL_SAFE)


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def _lower_escapes(text: str) -> str:
    head, *rest = text.split("%")
    return head + "".join("%" + part[:2].lower() + part[2:] for part in rest)


def _mapping(payload_json: str) -> Mapping[str, Any]:
    try:
        payload = json.loads(payload_json or "{}")
    except ValueError:
        return {}
    return payload if isinstance(payload, Mapping) else {}


def _leaves(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _leaves(item)]
    return [json.dumps(value)]
