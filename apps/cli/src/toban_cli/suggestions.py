"""The command that was probably meant by arguments that no command accepts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# Names that other tools have for our verbs.
_SAME = {
    "add": ("apply",),
    "create": ("apply", "add"),
    "describe": ("get",),
    "disable": ("pause",),
    "enable": ("resume",),
    "exec": ("start",),
    "kill": ("cancel",),
    "log": ("logs",),
    "ls": ("list",),
    "ps": ("list",),
    "run": ("start",),
    "show": ("get",),
    "status": ("status", "get"),
    "stop": ("cancel", "pause"),
    "tail": ("logs",),
    "trigger": ("start",),
}
# The noun that is meant first when several have the verb.
_FIRST = ("run", "job", "schedule")
_HARMLESS = ("get", "list", "logs", "start")
_UNKNOWN = re.compile(r"^No such command '(?P<word>[^']*)'")
_EXTRA = re.compile(
    r"^Got unexpected extra arguments? \((?P<words>.+)\)|^Got unexpected extra argument\(s\) \((?P<all>.+)\)"
)


def hint(message: str, argv: Sequence[str], verbs: Mapping[str, Sequence[str]]) -> str:
    """The command that was probably meant, such as `toban run logs 9`; "" when nothing is close.

    `verbs` are the verbs of each noun; those without a noun are under "".
    """
    if unknown := _UNKNOWN.match(message):
        return _other_place(unknown["word"], argv, verbs)
    if extra := _EXTRA.match(message):
        return _with_params((extra["words"] or extra["all"]).split(), argv)
    return ""


def instead_of_value(message: str, command: str) -> str:
    """The message when a secret was given as an argument, without the value; "" for every other mistake."""
    if command != "toban secret set" or not _EXTRA.match(message):
        return ""
    return (
        "a value is never an argument, which every account of this machine can see: "
        "leave it out to be asked for it, or give it by stdin (`pass show db | toban secret set NAME`) or `--file`"
    )


def _other_place(word: str, argv: Sequence[str], verbs: Mapping[str, Sequence[str]]) -> str:
    """The same verb, or its other name, under another noun. Nothing that ends or removes what the given noun does not name."""
    given = argv[0] if argv and argv[0] in verbs else ""
    nouns = sorted(verbs, key=lambda noun: (noun != given, *(noun != first for first in _FIRST), noun))
    for noun in nouns:
        for verb in (word, *_SAME.get(word, ())):
            if verb in verbs[noun] and (noun == given or not given or verb in _HARMLESS):
                behind = argv[argv.index(word) + 1 :] if word in argv else ()
                return " ".join(["toban", *filter(None, [noun]), verb, *behind])
    return ""


def _with_params(words: Sequence[str], argv: Sequence[str]) -> str:
    """Parameters of a run that were given as bare words."""
    if not all("=" in word for word in words) or list(argv[:2]) != ["run", "start"]:
        return ""
    kept = [word for word in argv if word not in words]
    return " ".join(["toban", *kept, *(f"--param {word}" for word in words)])
