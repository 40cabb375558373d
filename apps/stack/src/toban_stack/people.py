"""What `make up` does about people: a token for the commands of this machine, and the link for the first administrator."""

import json
import os
from pathlib import Path
from typing import Any

from toban_cli.contexts import Context, ContextFile, Contexts
from toban_runtime.private_file import write_private
from toban_stack.console import print_lines
from toban_stack.errors import StackError
from toban_stack.processes import alive
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_stack.toban_command import MOST_ROWS, TobanCommand

LOCAL_USER = "local"
# As toban_cli.cluster_config.CONTEXT_FILE.
CONTEXT_FILE = "context.json"
# The context of `toban dev`.
DEV = "dev"
TOKEN_DAYS = "366"


def prepare_context(command: TobanCommand, home: Path) -> bool:
    """Writes the context of scripts/toban, a file of mode 0600, unless the one that is there is good; whether there was none. Raises StackError.

    Its token is of the account `local`, which has role admin and no password. An account of that name keeps the rules that it has now,
    unless an earlier start made it and was ended before it gave it a rule: then no token of it was ever made.
    """
    context = home / CONTEXT_FILE
    is_first = not context.exists()
    if not is_first and command.succeeds("user", "whoami"):
        return False
    users = _listed(command, "user", "list", "--limit", str(MOST_ROWS))
    is_new = LOCAL_USER not in {user["name"] for user in users}
    if is_new:
        command.output("--direct", "user", "add", LOCAL_USER, "--display-name", "commands on this machine")
    if is_new or not (
        _listed(command, "token", "list", "--user", LOCAL_USER)
        or _listed(command, "user", "rules", "--user", LOCAL_USER)
    ):
        command.output("--direct", "user", "grant", LOCAL_USER, "admin")
    created = command.output(
        *("--direct", "token", "add", LOCAL_USER, "make up"),
        *("--role", "admin", "--days", TOKEN_DAYS, "-o", "json"),
    )
    write_private(context, json.dumps({"user": LOCAL_USER, "token": json.loads(created)["secret"]}, indent=1) + "\n")
    print_lines(f"• commands act as user {LOCAL_USER}, by the token in {context.name}")
    return is_first


def enter_context(home: Path, site: str) -> None:
    """Lets the `toban` command and the SDK of this person reach the stack, by context `dev`, from any folder.

    It becomes the current one where there is none. One of that name that a person has made, or a stack of another folder that runs, stays.
    """
    token = json.loads((home / CONTEXT_FILE).read_text(encoding="utf-8"))["token"]
    with ContextFile(os.environ).change() as held:
        known = held[0]
        if DEV in known.named and not (_is_ours(known, home) or _is_left(known)):
            print_lines(
                f"• context {DEV} leads to {known.named[DEV].url} and stays: set TOBAN_HOME={home} for this stack, "
                f"or remove that context with `toban context delete {DEV}`"
            )
            return
        new = Context(url=f"http://{site}", token=token, user=LOCAL_USER)
        held[0] = known.with_one(DEV, new, current=known.current in ("", DEV), stack=str(home.absolute()))
    used = f"TOBAN_CONTEXT={DEV} chooses it; the current one is {known.current}"
    print_lines(f"• commands reach this stack by context {DEV}" + f" ({used})" * (held[0].current != DEV))


def leave_context(home: Path) -> None:
    """Removes the context of a stack that is down, if it is that of `enter_context`."""
    file = ContextFile(os.environ)
    known = file.load()
    if DEV not in known.named or not _is_ours(known, home):
        return
    with file.change() as held:
        held[0] = held[0].without(DEV)


def _is_ours(known: Contexts, home: Path) -> bool:
    """Whether the stack of this folder has made it. One of an older release has no folder, but its token."""
    if DEV in known.stacks:
        return known.stacks[DEV] == str(home.absolute())
    context = home / CONTEXT_FILE
    return context.exists() and known.named[DEV].token == json.loads(context.read_text(encoding="utf-8")).get("token")


def _is_left(known: Contexts) -> bool:
    """Whether a stack has made it that does not run any more, as far as its record can be read."""
    if DEV not in known.stacks:
        return False
    try:
        records = StateFile(path=StackPaths(Path(known.stacks[DEV])).state_file).all()
    except (StackError, OSError):
        return False
    return not any(alive(record) for record in records)


def _listed(command: TobanCommand, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command.output("--direct", *words, "-o", "json"))
    return found


def first_link(command: TobanCommand, site: str) -> str | None:
    """The address where the first administrator is made, good once and for an hour; None when there is one."""
    if json.loads(command.output("--direct", "user", "state", "-o", "json"))["has_administrator"]:
        return None
    secret = json.loads(command.output("--direct", "user", "bootstrap", "-o", "json"))["secret"]
    return f"http://{site}/first#{secret}"
