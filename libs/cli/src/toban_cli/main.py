"""Puts the commands together and turns every error into one line on stderr and an exit code (docs/errors.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from toban_cli import report
from toban_cli.commands import apply, cluster, jobs, runs
from toban_domain.errors import TobanError

EXIT_USAGE = 64
EXIT_INTERRUPTED = 130


def build() -> typer.Typer:
    """The whole tree of commands."""
    app = _group("Schedules jobs on a fleet of executors.")
    app.command("apply")(apply.apply)
    app.command("validate")(apply.validate)
    job = _group("Job definitions.")
    job.command("list")(jobs.list_jobs)
    job.command("get")(jobs.get_job)
    schedule = _group("Schedules.")
    schedule.command("list")(jobs.list_schedules)
    run_app = _group("Runs: start, look at, follow, cancel.")
    run_app.command("start")(runs.start)
    run_app.command("list")(runs.list_runs)
    run_app.command("get")(runs.get_run)
    run_app.command("logs")(runs.logs)
    run_app.command("cancel")(runs.cancel)
    executor = _group("Executors.")
    executor.command("list")(cluster.list_executors)
    status = _group("The cluster.")
    status.command("status")(cluster.status)
    for name, group in (
        ("job", job),
        ("schedule", schedule),
        ("run", run_app),
        ("executor", executor),
        ("cluster", status),
    ):
        app.add_typer(group, name=name)
    return app


def run(argv: Sequence[str]) -> int:
    """Runs one command; the exit code. Never raises for a mistake of the caller or of the cluster."""
    as_json = report.wants_json(argv)
    try:
        code = build()(args=list(argv) or ["--help"], prog_name="toban", standalone_mode=False)
    except TobanError as error:
        report.error(error, as_json=as_json)
        return error.exit_code
    except typer.TyperException as error:
        report.usage(error.format_message(), as_json=as_json)
        return EXIT_USAGE
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output left (`| head`): nothing to say, and nothing more to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def main() -> None:
    """The entry point."""
    raise SystemExit(run(sys.argv[1:]))


def _group(text: str) -> typer.Typer:
    # Without Rich in help and tracebacks: it would cost more than the whole rest of `toban --help`.
    return typer.Typer(help=text, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
