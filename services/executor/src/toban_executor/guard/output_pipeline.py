"""The output of one attempt on its way from the pipes to the executor: values redacted, cut into lines, limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from toban_domain.log_block import STDOUT, SYSTEM, LogBlock
from toban_domain.log_limits import Limiter, LogLimits
from toban_domain.output_redaction import MIN_BYTES, Redactor, byte_patterns, masked, patterns, secret_values
from toban_executor.decide.models import AttemptEnd, LogRules, StartOrder
from toban_executor.guard.clock import boottime, wall_ns
from toban_executor.guard.line_splitter import LineNumbering, LineSplitter


class OutputPipeline:
    """All streams of an attempt.

    `now` is a clock in seconds that never goes back, `now_ns` the time that lines carry.
    """

    def __init__(
        self,
        rules: LogRules,
        *,
        env: Mapping[str, str],
        payload_json: str,
        secrets: Iterable[bytes] = (),
        now: Callable[[], float],
        now_ns: Callable[[], int],
    ) -> None:
        values, self._short = set[str](), list[str]()
        if rules.redact:
            # Reads the whole payload.
            values, self._short = secret_values(rules.redact, env=env, payload_json=payload_json)
        self.numbering = LineNumbering()
        self._secret_forms = byte_patterns(secrets)
        self._forms = sorted({*patterns(values), *self._secret_forms}) if values or self._secret_forms else []
        self._now = now
        self._now_ns = now_ns
        self._limiter = Limiter(LogLimits(max_bytes=rules.max_bytes, lines_per_second=rules.lines_per_second))
        self._redactors: list[Redactor] = []
        # Gets each whole line of stdout that ends as a marker does, redacted, before the limits.
        self.read_marker: Callable[[bytes], None] | None = None

    def opening(self) -> list[LogBlock]:
        """Lines before the first one of the job: the names whose values are too short to be redacted."""
        if not self._short:
            return []
        names = ", ".join(self._short)
        return self.system_line(f"not redacted: the value of {names} has fewer than {MIN_BYTES} bytes")

    def stream(self, number: int) -> OutputStream:
        """A stream of the next step."""
        return OutputStream(number, self)

    def parts(self, number: int) -> tuple[Redactor, LineSplitter]:
        """What the bytes of a stream go through."""
        redactor = Redactor(self._forms)
        self._redactors.append(redactor)
        return redactor, LineSplitter(stream=number, numbering=self.numbering, now_ns=self._now_ns)

    def find_markers(self, block: LogBlock, *, inside: bool) -> None:
        """Pass on the markers in whole lines; the first line is none when it continues one that came `inside` an earlier block."""
        if self.read_marker is None or b"::" not in block.text:
            return
        for line in block.text.split(b"\n")[1 if inside else 0 :]:
            if line.startswith(b"::"):
                self.read_marker(line)

    def admit(self, blocks: list[LogBlock]) -> list[LogBlock]:
        """What the limits let through of these blocks."""
        now = self._now()
        return [kept for block in blocks for kept in self._limiter.take(block, now)]

    def system_line(self, message: str) -> list[LogBlock]:
        """A line of Toban's own."""
        text = message.encode() + b"\n"
        seq = self.numbering.reserve(1)
        line = LogBlock(stream=SYSTEM, partial=False, at_ns=self._now_ns(), seq_from=seq, lines=1, text=text)
        return self.admit([line])

    def tick(self) -> list[LogBlock]:
        """What became due by the clock."""
        return self._limiter.tick(self._now()) if self._limiter.has_gap else []

    def finish(self) -> list[LogBlock]:
        """The attempt is over: what is still due."""
        return self._limiter.finish()

    def complete(self, end: AttemptEnd, step_seq: int) -> AttemptEnd:
        """The end of the attempt, with what became of its output; the lines of its last step begin at number `step_seq`."""
        error_lines = self.numbering.error_lines(step_seq) if end.failed else ()
        return end._replace(
            reason=self.redact(end.reason),
            last_seq=self.numbering.last_seq,
            last_line=error_lines[-1].text.strip() if error_lines else self.numbering.last_line,
            error_lines=error_lines,
            redacted=self.redacted,
            left_out=self.left_out,
        )

    def redact(self, text: str) -> str:
        """A text about the attempt with the secret values masked."""
        return masked(text, self._forms) if self._forms else text

    def redact_secrets(self, text: str) -> str:
        """A text of the job's own with the values of its secrets masked, and nothing else."""
        return masked(text, self._secret_forms) if self._secret_forms else text

    @property
    def redacted(self) -> int:
        """How many values were masked."""
        return sum(redactor.count for redactor in self._redactors)

    @property
    def left_out(self) -> Mapping[str, tuple[int, int]]:
        """What was left out for good: reason → (lines, bytes)."""
        return self._limiter.left


def pipeline_of(order: StartOrder, *, env: Mapping[str, str]) -> OutputPipeline:
    """For an attempt: its rules, with the values of its secrets masked."""
    return OutputPipeline(
        order.logs,
        env=env,
        payload_json=order.payload_json,
        secrets=[secret.value for secret in order.secrets],
        now=boottime,
        now_ns=wall_ns,
    )


class OutputStream:
    """One pipe: bytes in, blocks out."""

    def __init__(self, number: int, pipeline: OutputPipeline) -> None:
        self._number = number
        self._has_markers = number == STDOUT
        # In the middle of a line that comes in pieces.
        self._inside = False
        # Made for the first bytes: many jobs write nothing.
        self._parts: tuple[Redactor, LineSplitter] | None = None
        self._pipeline = pipeline

    def feed(self, data: bytes) -> list[LogBlock]:
        """Add what was read."""
        if self._parts is None:
            self._parts = self._pipeline.parts(self._number)
        redactor, splitter = self._parts
        blocks = list(splitter.feed(redactor.feed(data)))
        if self._has_markers:
            self._find_markers(blocks)
        return self._pipeline.admit(blocks)

    def finish(self) -> list[LogBlock]:
        """The pipe has ended."""
        if self._parts is None:
            return []
        redactor, splitter = self._parts
        rest = [*splitter.feed(redactor.finish()), *splitter.finish()]
        if self._has_markers:
            self._find_markers(rest)
        return self._pipeline.admit(rest)

    def _find_markers(self, blocks: list[LogBlock]) -> None:
        for block in blocks:
            if block.partial:
                self._inside = True
            else:
                self._pipeline.find_markers(block, inside=self._inside)
                self._inside = False
