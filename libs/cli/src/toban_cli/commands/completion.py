"""`toban completion`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from toban_cli import report

VARIABLE = "_TOBAN_COMPLETE"


class Shell(StrEnum):
    """A shell that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


Which = Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)]


def completion(shell: Which) -> None:
    """Print the script that lets a shell complete commands, options, and names from the cluster.

    Examples:
    source <(toban completion bash)
    toban completion zsh > ~/.zfunc/_toban
    toban completion fish > ~/.config/fish/completions/toban.fish
    """
    from typer._completion_shared import get_completion_script

    report.say(get_completion_script(prog_name="toban", complete_var=VARIABLE, shell=shell))


def answer() -> None:
    """Before the command line is read: lets Typer answer the shell's questions in all shells that it knows."""
    from toban_cli.shells import register

    register()
