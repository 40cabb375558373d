"""Lines of output as log-archivers take them."""

from collections.abc import Mapping, Sequence

from toban_domain.dropped_lines import dropped_line_count
from toban_domain.log_block import STDERR, STDOUT, SYSTEM, LogBlock
from toban_domain.log_levels import levels_of
from toban_proto.v1 import logs_pb2

_STREAMS: "Mapping[int, logs_pb2.LogStream.ValueType]" = {
    STDOUT: logs_pb2.LOG_STREAM_STDOUT,
    STDERR: logs_pb2.LOG_STREAM_STDERR,
    SYSTEM: logs_pb2.LOG_STREAM_SYSTEM,
}


def stream_to_pb(number: int) -> "logs_pb2.LogStream.ValueType":
    """A stream of a LogBlock."""
    return _STREAMS[number]


def lines_to_pb(blocks: Sequence[LogBlock]) -> logs_pb2.LogLines:
    """What the data of a chunk has. Nothing is done line by line, but for text that may have levels."""
    lines = logs_pb2.LogLines()
    for block in blocks:
        lines.blocks.add(
            seq=block.seq_from,
            at_unix_nanos=block.at_ns,
            stream=stream_to_pb(block.stream),
            text=block.text,
            line_count=block.lines,
            partial=block.partial,
            levels=b"" if block.partial else levels_of(block.text),
            # The line that counts dropped lines goes through guards as text.
            dropped_lines=dropped_line_count(block.text) if block.stream == SYSTEM and block.lines == 1 else 0,
        )
    return lines
