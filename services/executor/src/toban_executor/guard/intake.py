"""The output of one attempt on its way from the pipes to the executor: values redacted, cut into lines, limited."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toban_executor.decide.log_block import SYSTEM, LogBlock
from toban_executor.decide.log_limits import Limiter, LogLimits
from toban_executor.decide.redact import MIN_BYTES, Redactor, masked, patterns, secret_values
from toban_executor.guard.lines import LineCutter, Numbering


class Intake:
    """All streams of an attempt. `rules` are {max_bytes, lines_per_second, redact: [name]} of its order.

    `now` is a clock in seconds that never goes back, `now_ns` the time that lines carry.
    """

    def __init__(
        self,
        rules: Mapping[str, Any],
        *,
        env: Mapping[str, str],
        payload_json: str,
        now: Callable[[], float],
        now_ns: Callable[[], int],
    ) -> None:
        values, self._short = secret_values(rules.get("redact", ()), env=env, payload_json=payload_json)
        self.numbering = Numbering()
        self._forms = patterns(values)
        self._now = now
        self._now_ns = now_ns
        self._limiter = Limiter(
            LogLimits(max_bytes=int(rules.get("max_bytes", 0)), lines_per_second=int(rules.get("lines_per_second", 0)))
        )
        self._redactors: list[Redactor] = []

    def opening(self) -> list[LogBlock]:
        """What is to be said before the first line: names whose values will be seen all the same."""
        if not self._short:
            return []
        names = ", ".join(self._short)
        return self.say(f"not redacted: the value of {names} has fewer than {MIN_BYTES} bytes")

    def stream(self, number: int) -> Stream:
        """A stream of the next step."""
        redactor = Redactor(self._forms)
        self._redactors.append(redactor)
        cutter = LineCutter(stream=number, numbering=self.numbering, now_ns=self._now_ns)
        return Stream(cutter, redactor, self)

    def admit(self, blocks: list[LogBlock]) -> list[LogBlock]:
        """What goes on of these blocks."""
        now = self._now()
        return [kept for block in blocks for kept in self._limiter.take(block, now)]

    def say(self, words: str) -> list[LogBlock]:
        """A line of our own."""
        text = words.encode() + b"\n"
        seq = self.numbering.take(1)
        line = LogBlock(stream=SYSTEM, partial=False, at_ns=self._now_ns(), seq_from=seq, count=1, text=text)
        return self.admit([line])

    def tick(self) -> list[LogBlock]:
        """Time has gone by."""
        return self._limiter.tick(self._now())

    def finish(self) -> list[LogBlock]:
        """The attempt is over."""
        return self._limiter.finish()

    def clean(self, text: str) -> str:
        """A text about the attempt, redacted."""
        return masked(text, self._forms) if self._forms else text

    @property
    def counts(self) -> dict[str, Any]:
        """Replaced values, and what was left out for good: reason → [lines, bytes]."""
        left = {reason: list(pair) for reason, pair in self._limiter.left.items()}
        return {"redacted": sum(redactor.count for redactor in self._redactors), "left": left}


class Stream:
    """One pipe: bytes in, blocks out."""

    def __init__(self, cutter: LineCutter, redactor: Redactor, intake: Intake) -> None:
        self._cutter = cutter
        self._redactor = redactor
        self._intake = intake

    def feed(self, data: bytes) -> list[LogBlock]:
        """Add what was read."""
        return self._intake.admit(list(self._cutter.feed(self._redactor.feed(data))))

    def finish(self) -> list[LogBlock]:
        """The pipe has ended."""
        rest = list(self._cutter.feed(self._redactor.finish()))
        return self._intake.admit([*rest, *self._cutter.finish()])
