"""The rule of each gRPC method: callers, the right of a person, what its request names, its routes of REST. Pure.

The protos have them (`option (rule)`, proto/toban_proto/v1/options.proto); docs/architecture.md shows them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from toban_domain.access import Action
from toban_proto.v1 import coordinator_pb2, executor_pb2, hooks_pb2, joining_pb2, logs_pb2, options_pb2, webhooks_pb2

PACKAGE = "toban_proto.v1"
_Names = options_pb2.MethodRule
# A parameter `{limit=name}`: its published name, and the field of the request.
_RENAMED = re.compile(r"{(\w+)=(\w+)}")
_PEOPLE = frozenset({"admin-web", "admin-cli"})


class About(StrEnum):
    """What a call of a person is about, and so which of the person's rules decide. options.proto explains each."""

    CLUSTER = "cluster"
    ANY = "any"
    JOBS = "jobs"
    LIST = "list"
    EACH = "each"
    WORK = "work"
    OWN = "own"


class Authority(StrEnum):
    """What admits a call of admin-web or admin-cli in place of a person's rights. options.proto explains each."""

    REQUEST = "request"
    TICKET = "ticket"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class PersonRule:
    """The action that a method is; MINIMUM has the role for it."""

    action: Action
    about: About


@dataclass(frozen=True, slots=True)
class Route:
    """A route of REST: its verb, and its path with parameters under their published names and as fields of the request."""

    verb: str
    published: str
    path: str

    def __str__(self) -> str:
        return f"{self.verb} {self.published}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodRule:
    """One method, denied to all without `callers`."""

    callers: frozenset[str] = frozenset()
    person: PersonRule | None = None
    authority: Authority | None = None
    """Both are None for methods that only services call."""
    names: tuple[str, str] | None = None
    """Kind and field of the object that the request names."""
    items: Sequence[tuple[str, str, str]] = ()
    """Each list in the answer: its field, the kind of its items, and their field with the key."""
    rest: Sequence[Route] = ()
    """The first one is the whole method."""


def _word(value: str) -> str:
    return value.lower().replace("_", "-")


def _person(options: options_pb2.MethodRule) -> PersonRule | None:
    if not options.action:
        return None
    action, about = _Names.Action.Name(options.action), _Names.About.Name(options.about)
    return PersonRule(Action(_word(action)), About(_word(about)))


def _route(text: str) -> Route:
    verb, path = text.split()
    return Route(verb, _RENAMED.sub(r"{\1}", path), _RENAMED.sub(r"{\2}", path))


def _rule(options: options_pb2.MethodRule) -> MethodRule:
    callers = {_word(_Names.Caller.Name(caller)) for caller in options.callers}
    kind, _, name = options.names.partition(":")
    items = [item.split(":") for item in options.items]
    return MethodRule(
        callers=frozenset(callers - {"people"} | _PEOPLE if "people" in callers else callers),
        person=_person(options),
        authority=Authority(_word(_Names.Authority.Name(options.authority))) if options.authority else None,
        names=(kind, name) if name else None,
        items=tuple((field, of, key) for field, of, key in items),
        rest=tuple(map(_route, options.rest)),
    )


RULES: Mapping[str, MethodRule] = {
    f"/{service.full_name}/{method.name}": _rule(method.GetOptions().Extensions[options_pb2.rule])
    for module in (coordinator_pb2, executor_pb2, hooks_pb2, joining_pb2, logs_pb2, webhooks_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Full method name → rule, for each method of the protos."""
