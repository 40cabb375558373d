"""What every command has: an example in its help, `-h`, `--errors`, `--context`, suggestions for what was mistyped, `--watch` without a number."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from toban_cli.cluster_config import CHOSEN
from toban_cli.completion_values import context_names
from toban_cli.own_options import in_options
from toban_cli.param_types import convert_plainly
from toban_domain.errors import TobanError

F = TypeVar("F", bound=Callable[..., Any])
# A docstring of a command has its examples below this line, one `toban …` a line.
EXAMPLES = "Examples:"
BARE_WATCH = "2"
# Earlier names of verbs, with the present ones. They work in every noun that has the present verb; no list of commands has them.
EARLIER: Mapping[str, str] = {
    "create": "add",
    "create-own": "add-own",
    "remove": "delete",
    "rm": "delete",
    "show": "get",
    "update": "set",
}


class ErrorFormat(StrEnum):
    """Format of errors."""

    TEXT = "text"
    JSON = "json"


Errors = Annotated[
    ErrorFormat | None,
    typer.Option(
        "--errors",
        show_default=False,
        help="Format of errors (default: TOBAN_ERRORS, else json with -o json or yaml).",
    ),
]


def _choose(name: str | None) -> str | None:
    """At once, because completion runs no command."""
    if name is not None:
        if not name.strip():
            raise typer.BadParameter("the name is empty; give that of a context (`toban context list`)")
        os.environ[CHOSEN] = name
    return name


OfContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        show_default=False,
        callback=_choose,
        autocompletion=context_names,
        help="The context to use for this command (`toban context list`).",
    ),
]


class Command(TyperCommand):
    """A command."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _common_options()
        self.help, self.examples = split_help(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, --help too."""
        return convert_plainly(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Click does, but `--watch` needs no value."""
        if any("--watch" in param.opts for param in self.params):
            args = _with_seconds(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """As Click does; mistakes in a request are named by the parameters of the command."""
        try:
            return super().invoke(ctx)
        except TobanError as error:
            raise in_options(error, self.params) from None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, as they are typed."""
        del ctx
        show_examples(self.examples, formatter)


class Group(TyperGroup):
    """A noun with its verbs; alone it prints its help."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help, self.examples = split_help(self.help)

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters, --help too."""
        return convert_plainly(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As Click does, but no argument at all asks for help."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """As Typer does; under a noun also by the earlier name of a verb."""
        word = args[0] if ctx.parent is None else present_verb(args[0], self.commands)
        return super().resolve_command(ctx, [word, *args[1:]])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The examples, as they are typed."""
        del ctx
        show_examples(self.examples, formatter)


class App(typer.Typer):
    """A tree of commands of the classes above."""

    def __init__(self, text: str, **kwargs: Any) -> None:
        # Without Rich in help and tracebacks: it would cost more than the whole rest of `toban --help`.
        super().__init__(
            cls=Group,
            help=text,
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
            **kwargs,
        )

    def command(self, name: str | None = None, **kwargs: Any) -> Callable[[F], F]:
        """Registers a function as a command."""
        return super().command(name, cls=Command, **kwargs)


def present_verb(word: str, verbs: Container[str]) -> str:
    """What a verb is called now, if `verbs` have that; else the word itself."""
    return EARLIER[word] if word not in verbs and EARLIER.get(word) in verbs else word


def split_help(text: str | None) -> tuple[str, list[str]]:
    """The help of a command without its examples, and those."""
    words, _, examples = (text or "").partition(f"\n\n{EXAMPLES}\n")
    return words, [line.strip() for line in examples.splitlines() if line.strip()]


def show_examples(examples: list[str], formatter: Any) -> None:
    """Lines that can be copied: never wrapped."""
    if examples:
        with formatter.section(EXAMPLES.rstrip(":")):
            for line in examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def _with_seconds(args: list[str]) -> list[str]:
    """`--watch` and `-w` with a number behind each that has none."""
    out: list[str] = []
    for index, word in enumerate(args):
        out.append(word)
        if word == "--":
            return out + args[index + 1 :]
        if word in ("--watch", "-w") and not _is_number("".join(args[index + 1 : index + 2])):
            out.append(BARE_WATCH)
    return out


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


@cache
def _common_options() -> list[Any]:
    """`--context` and `--errors`, which every command takes; main reads the latter from the arguments, for it also holds for mistakes in these."""
    probe = typer.Typer(add_completion=False)

    @probe.command()
    def command(context: OfContext = None, errors: Errors = None) -> None:
        del context, errors

    options = [param for param in typer.main.get_command(probe).params if param.name in ("context", "errors")]
    for option in options:
        option.expose_value = False
    return options
