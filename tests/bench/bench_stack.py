"""A stack of its own for a benchmark: real servers and services in a temporary folder, ended afterwards."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toban_stack.stack import Stack
from toban_testing.admin_client import AdminClient
from toban_testing.stack_fixtures import admin_of, running_stack
from toban_testing.starter import temporary_folder


@contextlib.contextmanager
def bench_stack(*, coordinators: int = 2, executors: int = 2, slots: int = 16) -> Iterator[AdminClient]:
    """A running stack, by a client of it."""
    with whole_stack(coordinators=coordinators, executors=executors, slots=slots) as (_, admin):
        yield admin


@contextlib.contextmanager
def whole_stack(
    *, coordinators: int = 2, executors: int = 2, slots: int = 16, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[Stack, AdminClient]]:
    """A running stack and a client of it. `environment` is added to its processes'."""
    with contextlib.ExitStack() as context:
        home = context.enter_context(temporary_folder("toban-bench-"))
        running = running_stack(
            home, coordinators=coordinators, executors=executors, slots=slots, environment=environment
        )
        stack = context.enter_context(running)
        yield stack, context.enter_context(admin_of(stack))


def job(name: str, argv: Sequence[str], **spec: Any) -> dict[str, Any]:
    """The manifest of a job with one command step."""
    step = {"id": "main", "type": "command", "argv": list(argv)}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"steps": [step], **spec}}


def schedules(count: int, *, job: str, prefix: str = "bench", **spec: Any) -> Iterator[list[dict[str, Any]]]:
    """Manifests of `count` schedules of one job, in calls of at most 1,000."""
    for first in range(0, count, 1000):
        yield [
            {
                "apiVersion": "toban/v1",
                "kind": "Schedule",
                "metadata": {"name": f"{prefix}-{number:06d}"},
                "spec": {"job": job, **spec},
            }
            for number in range(first, min(count, first + 1000))
        ]
