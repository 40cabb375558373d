"""The W3C `traceparent`: a position in a trace, as text and in parts."""

import hashlib
import re
from dataclasses import dataclass

_HEADER = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span of a trace by its lower-case hexadecimal ids (32 and 16 digits). Its child spans are exported when it is `sampled`."""

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def header(self) -> str:
        """The value of `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parse(header: str) -> TraceContext | None:
    """The context in a `traceparent` header; None when it is invalid or its ids are zero."""
    found = _HEADER.fullmatch(header)
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return None
    if set(found["trace"]) == {"0"} or set(found["span"]) == {"0"}:
        return None
    return TraceContext(found["trace"], found["span"], bool(int(found["flags"], 16) & _SAMPLED))


def of_run(cluster: str, run_id: int) -> TraceContext:
    """The root span of a run that was not started by a traced call: derived, so that it is the same for each attempt and coordinator."""
    digest = hashlib.blake2b(f"{cluster}/{run_id}".encode(), digest_size=24, person=b"toban-run").hexdigest()
    return TraceContext(digest[:32], digest[32:])
