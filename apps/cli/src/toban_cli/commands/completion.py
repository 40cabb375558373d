"""`toban completion`."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer
from typer._click.shell_completion import CompletionItem, add_completion_class
from typer._completion_classes import ZshComplete, completion_init
from typer._completion_shared import get_completion_script

from toban_cli import report

VARIABLE = "_TOBAN_COMPLETE"
# Characters without a meaning to any shell, evaluated or not.
WORD = re.compile(r"[A-Za-z0-9._/@+=-]+")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 .,/+=_-]+")


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
    report.echo(get_completion_script(prog_name="toban", complete_var=VARIABLE, shell=shell))


def register_shells() -> None:
    """Before the command line is parsed: lets Typer answer the shell's completion requests, zsh through our class."""
    completion_init()
    add_completion_class(Zsh, "zsh")


class Zsh(ZshComplete):
    """Words of plain characters alone, and descriptions without any other."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Those that can be written without quoting."""
        return [item for item in super().get_completions(args, incomplete) if WORD.fullmatch(str(item.value))]

    def format_completion(self, item: CompletionItem) -> str:
        """As zsh's _arguments takes it."""
        about = _NOT_PLAIN.sub(" ", item.help or "").strip()
        return f'"{item.value}":"{about}"' if about else f'"{item.value}"'
