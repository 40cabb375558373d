"""`toban doctor`."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from toban_cli import report
from toban_cli.formatting import count
from toban_cli.options import Format, Output
from toban_cli.sanitize import clean

if TYPE_CHECKING:
    from toban_domain.finding import Finding


def doctor(output: Output = Format.TABLE) -> int:
    """Check configuration, certificates, servers, clocks, versions, database and executors, and print remedies.

    Through a site (docs/cli.md) only what the site and the coordinators behind it say.
    Exit code 0: everything is ok; 1: there is an error; 2: there are warnings only.

    Examples:
    toban doctor
    toban doctor -o wide
    """
    # Read when gRPC is imported, as in `toban_cli.client`.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from toban_cli.doctor.examine import examine
    from toban_cli.doctor.merge import EXIT_CODES, worst
    from toban_runtime.clock import SystemClock

    found = examine(os.environ, SystemClock())
    _show(found, output)
    return EXIT_CODES[worst(found)]


def _show(found: list[Finding], output: Format) -> None:
    from toban_cli.doctor.merge import worst

    if output.is_data:
        from dataclasses import asdict

        from toban_cli.output import show_data

        show_data(output, {"status": worst(found), "checks": [asdict(item) for item in found]})
        return
    problems = [item for item in found if not item.ok]
    if output is Format.NAME:
        for name in dict.fromkeys(item.name for item in problems):
            report.echo(name)
        return
    if output is Format.WIDE:
        from toban_cli.tables import table

        rows = [[item.status, item.name, item.subject, item.value] for item in found]
        table(["STATUS", "CHECK", "SUBJECT", "VALUE"], rows, loose=["SUBJECT", "VALUE"])
        report.echo("")
    for item in problems:
        # Servers, certificates and the environment are quoted here: each line stays one.
        report.echo(clean(f"{item.status}: {item.name}: {item.subject} ({item.value})"))
        report.echo(clean(f"  {item.message}"))
        report.echo(clean(f"  remedy: {item.remedy}"))
    report.echo(_summary(found))


def _summary(found: list[Finding]) -> str:
    counts = Counter(item.status for item in found)
    if counts["ok"] == len(found):
        return f"all {len(found)} checks are ok" if len(found) != 1 else "the one check is ok"
    parts = [
        f"{counts[status]} {status if status == 'ok' or counts[status] == 1 else status + 's'}"
        for status in ("error", "warning", "ok")
        if counts[status]
    ]
    return f"{count(len(found), 'check')}: {', '.join(parts)}"
