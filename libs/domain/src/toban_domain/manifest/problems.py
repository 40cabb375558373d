"""What is wrong with a manifest, collected over all documents before anything is said."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import canonical_json
from toban_domain.schedule import RuleSpec

# Detail travels in gRPC metadata, which is bounded: the first problems that fit are told, and how many more there are.
DETAIL_BYTES = 3500


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """One mistake: where (source, path such as `spec.steps[0].argv`), what, and the remedy."""

    source: str
    path: str
    message: str
    hint: str = ""
    code: ErrorCode = ErrorCode.MANIFEST_INVALID

    def line(self) -> str:
        """The mistake in one line."""
        where = f"{self.source}: {self.path}" if self.path else self.source
        return f"{where}: {self.message}" + (f"; {self.hint}" if self.hint else "")

    def to_json(self) -> dict[str, str]:
        """For `detail.errors` of the error."""
        return {
            "source": self.source,
            "path": self.path,
            "message": self.message,
            "hint": self.hint,
            "code": str(self.code),
        }


class RuleProblem(NamedTuple):
    """A mistake in a rule: the field of RuleSpec, what, and the remedy."""

    field: str
    message: str
    hint: str


# Checks the arithmetic of a rule (expression, zone, whether it ever fires). toban_schedule.problems is the implementation.
RuleCheck = Callable[[RuleSpec], Sequence[tuple[str, str, str]]]


class Problems:
    """Collects the problems of one document."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[ManifestProblem] = []

    def add(self, path: str, message: str, hint: str = "", *, code: ErrorCode = ErrorCode.MANIFEST_INVALID) -> None:
        """Notes a problem at `path`."""
        self.found.append(ManifestProblem(self.source, path, message, hint, code))


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is closest to a mistyped one, "" when none is close."""
    lowered = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), list(lowered), n=1, cutoff=0.6)
    return lowered[close[0]] if close else ""


def raise_for(problems: Sequence[ManifestProblem], *, detail_bytes: int | None = DETAIL_BYTES) -> None:
    """Raises MANIFEST_INVALID with the problems in `detail.errors` (SCHEDULE_INVALID when all are about rules); returns when there are none.

    `detail_bytes` bounds what is told in detail; None = everything, for a caller on the same machine.
    """
    if not problems:
        return
    codes = {problem.code for problem in problems}
    code = codes.pop() if len(codes) == 1 else ErrorCode.MANIFEST_INVALID
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    told: list[dict[str, str]] = []
    for problem in problems:
        told.append(problem.to_json())
        if detail_bytes is not None and len(canonical_json(told)) > detail_bytes:
            told.pop()
            break
    raise TobanError(
        code,
        problems[0].line() + more,
        detail={"errors": told, "left_out": len(problems) - len(told)} if told else None,
    )
