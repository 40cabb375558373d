"""`toban version`: of this command, and of the servers that it goes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toban_cli import report
from toban_cli.client import call
from toban_cli.messages import pb
from toban_cli.options import Format, Output
from toban_cli.output import show_data
from toban_domain.errors import TobanError
from toban_domain.version import VERSION


def version(output: Output = Format.TABLE) -> None:
    """Print the version of this command, and those of the coordinators and executors that are there.

    Servers that cannot be reached are a note, and no error. `toban --version` asks no server.

    Examples:
    toban version
    toban version --context prod -o json
    """
    cluster, problem = _cluster() if output is not Format.NAME else (None, None)
    found = {
        "client": VERSION,
        "coordinators": _versions(one for one in cluster.coordinators if one.status == "ok") if cluster else [],
        "executors": _versions(one for one in cluster.executors if one.state != "off") if cluster else [],
    }
    if output.is_data:
        show_data(output, found)
    elif output is Format.NAME:
        report.echo(VERSION)
    else:
        from toban_cli.tables import facts

        several = (("Coordinators", found["coordinators"]), ("Executors", found["executors"]))
        facts([("Client", VERSION), *((title, ", ".join(versions)) for title, versions in several)])
    if problem is not None:
        report.note(f"the versions of the servers are not known: {problem.message}")


def _cluster() -> tuple[Any, TobanError | None]:
    try:
        return call("JobReader.GetCluster", pb.GetClusterRequest()), None
    except TobanError as error:
        return None, error


def _versions(members: Iterable[Any]) -> list[str]:
    return sorted({one.version for one in members if one.version})
