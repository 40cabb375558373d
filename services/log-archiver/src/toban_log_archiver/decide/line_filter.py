"""Which lines a reader wants."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from toban_log_archiver.decide.line import STREAMS, Line
from toban_log_archiver.decide.line_pattern import Pattern

LEVELS: Mapping[str, int] = {"trace": 1, "debug": 2, "info": 3, "warning": 4, "error": 5, "fatal": 6, "critical": 6}
"""How grave the levels of structured lines are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Filters that a line has to pass, each of them; as made it lets every line pass."""

    streams: Set[int] = STREAMS
    since_nanos: int | None = None
    until_nanos: int | None = None
    min_level: int = 0
    """A number of LEVELS; 0 lets lines without a level pass too."""
    pattern: Pattern | None = None

    @property
    def is_everything(self) -> bool:
        """True when no line is left out."""
        return self == Selection()

    @property
    def parts(self) -> tuple[Selection, Pattern | None]:
        """What is cheap to check for a whole chunk, and the expression that is matched line by line, if there is one."""
        if self.pattern is None or not self.pattern.is_costly:
            return self, None
        return replace(self, pattern=None), self.pattern

    def keeps(self, line: Line) -> bool:
        """Whether this line is wanted. The most expensive test comes last."""
        return (
            line.stream in self.streams
            and (self.since_nanos is None or line.at_unix_nanos >= self.since_nanos)
            and (self.until_nanos is None or line.at_unix_nanos < self.until_nanos)
            and (self.min_level == 0 or LEVELS.get(line.level, 0) >= self.min_level)
            and (self.pattern is None or self.pattern.matches(line.text))
        )
