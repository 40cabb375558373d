"""Which steps an executor starts: by its allow-list, and shells only where both sides permit them."""

from collections.abc import Callable, Collection
from functools import lru_cache

from toban_domain.job import GUARDED_STEPS
from toban_domain.shell_detection import callable_reason, django_reason, shell_reason
from toban_executor.decide.allow_list import AllowList
from toban_executor.decide.models import StartOrder, StepOrder
from toban_fencing.order_book import Unfit

SUPPORTED_STEPS = ("command", "python", "django", "http", "container", "kubernetes")
OWN_PROGRAMS = ("http", "container", "kubernetes")
"""Steps that a program of the executor itself carries out."""
NOT_HERE = "STEP_NOT_HERE"
"""Refusal for what this executor is set up for: the run goes to another one. A leader of an earlier version may not know where it belongs."""
_NEEDED = {"container": "SCHEDULER_CONTAINER_ENGINE", "kubernetes": "SCHEDULER_KUBERNETES_API"}
_RIGHTS = {"container": "the socket of a container engine", "kubernetes": "a token for a cluster"}


@lru_cache(maxsize=64)
def why_shell(argv: tuple[str, ...], real_name: str = "") -> str:
    """Why `argv` counts as shell, by the same judgement as when it was applied ("" = it does not). `real_name` is the file
    behind argv[0]'s links, which only the executor can see. Many runs have the same command."""
    reason = shell_reason(argv)
    return reason or (shell_reason([real_name, *argv[1:]]) if real_name else "")


def _what(step: StepOrder, real: str) -> tuple[str, str]:
    """What the step runs, and why that counts as shell."""
    if step.type == "python":
        return f"callable {step.callable!r}", callable_reason(step.callable) or why_shell(step.argv, real)
    if step.type == "django":
        return f"command {step.command!r}", django_reason(step.command) or why_shell(step.argv, real)
    return f"program {step.argv[0]!r}", why_shell(step.argv, real)


class ProgramRules:
    """Judges the steps of an order. `resolve` gives the file that a name means on the executor's PATH ("" = none) and the
    file behind its links. `guarded` are the types of GUARDED_STEPS that run here; with one the executor starts no program of a definition,
    since that could open the engine's socket, or read the token for the cluster."""

    def __init__(
        self, *, allowed: AllowList, resolve: Callable[[str], tuple[str, str]], guarded: Collection[str] = ()
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._guarded = guarded

    def unfit(self, order: StartOrder) -> Unfit | None:
        """Why this order can never run here, or None. NOT_HERE is about this executor, every other refusal about the job."""
        if not order.steps:
            return Unfit("UNSUPPORTED_STEP", "the order has no step")
        # Steps before the first one were done by earlier dispatches, here or elsewhere.
        for number, step in enumerate(order.steps[order.first_step :], start=order.first_step + 1):
            if step.type not in SUPPORTED_STEPS:
                known = ", ".join(map(repr, SUPPORTED_STEPS))
                return Unfit("UNSUPPORTED_STEP", f"step {number} has type {step.type!r}; this executor runs {known}")
            if step.type in GUARDED_STEPS and step.type not in self._guarded:
                message = f"step {number} has type {step.type!r}; this executor has no {_NEEDED[step.type]}"
                return Unfit(NOT_HERE, message)
            if self._guarded and step.type not in OWN_PROGRAMS:
                rights = " and ".join(_RIGHTS[kind] for kind in self._guarded)
                message = (
                    f"step {number} has type {step.type!r}; this executor has {rights}, which such a job could use"
                )
                return Unfit(NOT_HERE, message)
            if not step.argv or not step.argv[0]:
                return Unfit("UNSUPPORTED_STEP", f"step {number} has no program: argv is empty")
            if message := self._forbidden(step, order.allow_shell) or self._forbidden_variable(step, order):
                return Unfit("PROGRAM_NOT_ALLOWED", f"step {number}: {message}")
        return None

    def _forbidden_variable(self, step: StepOrder, order: StartOrder) -> str:
        # Programs of the executor itself get no variable of a definition.
        if step.type in OWN_PROGRAMS:
            return ""
        return self._allowed.why_not_variables({*order.env, *(one.file_env for one in order.secrets if one.file_env)})

    def _forbidden(self, step: StepOrder, allow_shell: bool) -> str:
        if step.type in OWN_PROGRAMS:
            return ""
        name = step.argv[0]
        found, real = self._resolve(name)
        what, reason = _what(step, real)
        if reason:
            if not allow_shell:
                return f"{what} is a shell command ({reason}): set allow_shell in the definition"
            if not self._allowed.shell:
                return f"{what} is a shell command ({reason}): this executor's allow-list has no line 'shell: true'"
        if not self._allowed.listed:
            return ""
        if step.type == "command":
            return self._unlisted(step, name, found)
        return self._unlisted_python(step, name, found, real)

    def _unlisted(self, step: StepOrder, name: str, found: str) -> str:
        entries = self._allowed.entries([name, found])
        if not entries:
            return f"program {name!r} is not in this executor's allow-list"
        if not self._allowed.permits(entries, step.argv[1:]):
            return f"the arguments of {name!r} match no line args: below it in this executor's allow-list"
        return ""

    def _unlisted_python(self, step: StepOrder, name: str, found: str, real: str) -> str:
        # Under any name in the list: the same interpreter can do the same.
        entries = self._allowed.entries([name, found])
        entries += [one for one in self._allowed.programs if real and self._resolve(one)[1] == real]
        if any(one not in self._allowed.arguments for one in entries):
            return ""
        without = ", without args:" if entries else ""
        return f"{step.type} steps need the interpreter {name!r} in this executor's allow-list{without}"

    def program(self, name: str) -> str:
        """The file to start for `name` when a list holds, so that a definition's own PATH cannot put another in its place;
        empty = by the job's own PATH."""
        return self._resolve(name)[0] if self._allowed.listed else ""
