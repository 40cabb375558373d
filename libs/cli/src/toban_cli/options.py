"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How a command answers."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="table for people, json for programs.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many.")]
Files = Annotated[list[str], typer.Option("--file", "-f", help="A YAML file, a folder of them, or - for stdin.")]
