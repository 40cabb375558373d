"""Which programs an executor starts: by the local allow-list, and shells only where both sides permit them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from toban_domain.shell_detection import callable_reason, shell_reason
from toban_executor.decide.models import StartOrder, StepOrder
from toban_fencing.order_book import Unfit

SUPPORTED_STEPS = ("command", "python")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """Programs by absolute path or by name; a name means the file found on the executor's own PATH. `listed` is False when
    there is no file: every program is allowed then."""

    listed: bool = False
    programs: frozenset[str] = field(default_factory=frozenset)
    shell: bool = True


def parse_allow_list(text: str) -> AllowList:
    """One program a line, ``#`` comments, and ``shell: true`` to permit shells. Raises ValueError naming the line."""
    programs, shell = set(), False
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        if entry.startswith("shell:"):
            shell = _truth(entry.partition(":")[2].strip(), number)
        elif len(entry.split()) > 1 or ("/" in entry and not entry.startswith("/")):
            raise ValueError(f"line {number}: {entry!r} is neither a name nor an absolute path")
        else:
            programs.add(entry)
    return AllowList(listed=True, programs=frozenset(programs), shell=shell)


def _truth(text: str, number: int) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"line {number}: shell: must be true or false, not {text!r}")
    return text == "true"


def why_shell(argv: Sequence[str], real_name: str = "") -> str:
    """Why `argv` counts as shell, by the same judgement as when it was applied ("" = it does not). `real_name` is the file
    behind argv[0]'s links, which only the executor can see."""
    reason = shell_reason(argv)
    return reason or (shell_reason([real_name, *argv[1:]]) if real_name else "")


class ProgramRules:
    """Judges the steps of an order. `resolve` gives the file that a name means on the executor's PATH ("" = none) and the
    file behind its links."""

    def __init__(self, *, allowed: AllowList, resolve: Callable[[str], tuple[str, str]]) -> None:
        self._allowed = allowed
        self._resolve = resolve

    def unfit(self, order: StartOrder) -> Unfit | None:
        """Why this order can never run here, or None."""
        if not order.steps:
            return Unfit("UNSUPPORTED_STEP", "the order has no step")
        # Steps before the first one were done by earlier dispatches, here or elsewhere.
        for number, step in enumerate(order.steps[order.first_step :], start=order.first_step + 1):
            if step.type not in SUPPORTED_STEPS:
                known = " and ".join(map(repr, SUPPORTED_STEPS))
                return Unfit("UNSUPPORTED_STEP", f"step {number} has type {step.type!r}; this executor runs {known}")
            if not step.argv or not step.argv[0]:
                return Unfit("UNSUPPORTED_STEP", f"step {number} has no program: argv is empty")
            if message := self._forbidden(step, order.allow_shell):
                return Unfit("PROGRAM_NOT_ALLOWED", f"step {number}: {message}")
        return None

    def _forbidden(self, step: StepOrder, allow_shell: bool) -> str:
        name = step.argv[0]
        found, real = self._resolve(name)
        python = step.type == "python"
        what = f"callable {step.callable!r}" if python else f"program {name!r}"
        if reason := callable_reason(step.callable) if python else why_shell(step.argv, real):
            if not allow_shell:
                return f"{what} is a shell command ({reason}): set allow_shell in the definition"
            if not self._allowed.shell:
                return f"{what} is a shell command ({reason}): this executor's allow-list has no line 'shell: true'"
        if not self._allowed.listed or {name, found} & self._allowed.programs:
            return ""
        if python:
            # Under any name in the list: the same interpreter can do the same.
            if real and any(self._resolve(entry)[1] == real for entry in self._allowed.programs):
                return ""
            return f"python steps need the interpreter {name!r} in this executor's allow-list"
        return f"{what} is not in this executor's allow-list"

    def program(self, name: str) -> str:
        """The file to start for `name` when a list holds, so that a definition's own PATH cannot put another in its place;
        empty = by the job's own PATH."""
        return self._resolve(name)[0] if self._allowed.listed else ""
