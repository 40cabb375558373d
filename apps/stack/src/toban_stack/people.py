"""What `make up` does about people: a token for the commands of this machine, and the link for the first administrator."""

import json
from pathlib import Path
from typing import Any

from toban_stack.console import print_lines
from toban_stack.stack_paths import write_private
from toban_stack.toban_command import MOST_ROWS, TobanCommand

LOCAL_USER = "local"
# As toban_cli.cluster_config.CONTEXT_FILE.
CONTEXT_FILE = "context.json"
TOKEN_DAYS = "366"


def prepare_context(command: TobanCommand, home: Path) -> None:
    """Writes the context of scripts/toban, a file of mode 0600, unless the one that is there is good. Raises StackError.

    Its token is of the account `local`, which has role admin and no password. An account of that name keeps the rules that it has now,
    unless an earlier start made it and was ended before it gave it a rule: then no token of it was ever made.
    """
    context = home / CONTEXT_FILE
    if context.exists() and command.succeeds("user", "whoami"):
        return
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
        *("--direct", "token", "create", LOCAL_USER, "make up"),
        *("--role", "admin", "--days", TOKEN_DAYS, "-o", "json"),
    )
    write_private(context, json.dumps({"user": LOCAL_USER, "token": json.loads(created)["secret"]}, indent=1) + "\n")
    print_lines(f"• commands act as user {LOCAL_USER}, by the token in {context.name}")


def _listed(command: TobanCommand, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(command.output("--direct", *words, "-o", "json"))
    return found


def first_link(command: TobanCommand, site: str) -> str | None:
    """The address where the first administrator is made, good once and for an hour; None when there is one."""
    if json.loads(command.output("--direct", "user", "state", "-o", "json"))["has_administrator"]:
        return None
    secret = json.loads(command.output("--direct", "user", "bootstrap", "-o", "json"))["secret"]
    return f"http://{site}/first#{secret}"
