"""Typer's answers to shells, made safe for zsh: it evaluates what it is answered, and Typer leaves backslashes as they are."""

from __future__ import annotations

import re

from typer._click.shell_completion import CompletionItem, add_completion_class
from typer._completion_classes import ZshComplete, completion_init

# What no shell takes for more than itself, evaluated or not.
WORD = re.compile(r"[A-Za-z0-9._/@+=-]+")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 .,/+=_-]+")


class Zsh(ZshComplete):
    """Words of plain characters alone, and descriptions without any other."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Those that can be written without quoting."""
        return [item for item in super().get_completions(args, incomplete) if WORD.fullmatch(str(item.value))]

    def format_completion(self, item: CompletionItem) -> str:
        """As zsh's _arguments takes it."""
        about = _NOT_PLAIN.sub(" ", item.help or "").strip()
        return f'"{item.value}":"{about}"' if about else f'"{item.value}"'


def register() -> None:
    """All shells that Typer knows, zsh by ours."""
    completion_init()
    add_completion_class(Zsh, "zsh")
