"""What is wrong with a manifest, as data and as an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import canonical_json
from toban_domain.schedule import RuleSpec

# Detail travels in gRPC metadata, which is bounded: the first problems that fit are given, and how many more there are.
DETAIL_BYTES = 3500

# Checks the arithmetic of a rule (expression, zone, whether it ever fires): (field of RuleSpec, message, hint) of each problem.
# toban_schedule.problems is the implementation.
RuleCheck = Callable[[RuleSpec], Sequence[tuple[str, str, str]]]


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """One mistake: where (source, path such as `spec.steps[0].argv`), what, and its remedy."""

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


def raise_for(problems: Sequence[ManifestProblem], *, detail_bytes: int | None = DETAIL_BYTES) -> None:
    """Raises MANIFEST_INVALID with the problems in `detail.errors` (their code when all share one); returns when there are none.

    `detail_bytes` bounds `detail.errors`; None = everything, for a caller on the same machine.
    """
    if not problems:
        return
    codes = {problem.code for problem in problems}
    code = codes.pop() if len(codes) == 1 else ErrorCode.MANIFEST_INVALID
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    listed: list[dict[str, str]] = []
    for problem in problems:
        listed.append(problem.to_json())
        if detail_bytes is not None and len(canonical_json(listed)) > detail_bytes:
            listed.pop()
            break
    raise TobanError(
        code,
        problems[0].line() + more,
        detail={"errors": listed, "left_out": len(problems) - len(listed)} if listed else None,
    )
