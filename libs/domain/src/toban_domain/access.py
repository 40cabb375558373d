"""Who may do what: roles, rules with the jobs that they are for, and one decision with its reason.

Denied unless a rule allows it; a rule that denies counts more than any that allows. The order of rules never matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

from toban_domain.errors import ErrorCode, TobanError

TOKEN_PREFIX = "toban_pat_"
"""API tokens begin with it; secrets of sessions do not."""

MAX_REASON = 1000
"""Characters of a reason that the audit log keeps, and of a note."""

WORKER = "worker"
"""The scope of a token for external workers; its `scope_id` is the `worker_type` of the steps. No job, run or rule has it."""


class Role(StrEnum):
    """Each role may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    EDITOR = "editor"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return tuple(Role).index(self)


class Action(StrEnum):
    """What a person does. `MINIMUM` has the role for each."""

    VIEW = "view"
    RUN = "run"
    CANCEL = "cancel"
    EDIT = "edit"
    OPERATE = "operate"
    ACCOUNTS = "accounts"


MINIMUM: Mapping[Action, Role] = {
    Action.VIEW: Role.VIEWER,
    Action.RUN: Role.OPERATOR,
    Action.CANCEL: Role.OPERATOR,
    Action.EDIT: Role.EDITOR,
    Action.OPERATE: Role.ADMIN,
    Action.ACCOUNTS: Role.ADMIN,
}
"""view lists and logs; run starts and repeats; cancel stops; edit changes jobs and schedules; operate changes executors, settings, limits and the
leader; accounts changes users, groups and rules."""

OF_CLUSTER = frozenset({Action.OPERATE, Action.ACCOUNTS})
"""Actions without a job: only a rule for everything allows them."""


class Effect(StrEnum):
    """What a rule does to actions that it fits."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What an action is about: a job, with the labels of its definition and the scope of the run or schedule."""

    job: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    scope: str = "system"
    scope_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which jobs a rule is for; every part that is given must fit. Empty: all jobs and the cluster itself."""

    job: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    scope_id: str = ""

    @property
    def everything(self) -> bool:
        """Whether it leaves nothing out."""
        return not (self.job or self.labels or self.scope or self.scope_id)

    def fits(self, target: Target | None) -> bool:
        """Whether `target` is one of them; None is the cluster itself."""
        if self.everything:
            return True
        if target is None:
            return False
        return (
            self.job in ("", target.job)
            and self.scope in ("", target.scope)
            and self.scope_id in ("", target.scope_id)
            and all(target.labels.get(key) == value for key, value in self.labels.items())
        )

    def can_fit(self, part: Target) -> bool:
        """Whether it fits some job of the name and labels of `part`, where "" and labels that are not there are any."""
        return (self.job in ("", part.job) or not part.job) and all(
            part.labels.get(key, value) == value for key, value in self.labels.items()
        )

    def __str__(self) -> str:
        parts = [f"job {self.job}"] if self.job else []
        parts += [f"label {key}={value}" for key, value in sorted(self.labels.items())]
        if self.scope:
            parts.append(f"scope {self.scope}{f':{self.scope_id}' if self.scope_id else ''}")
        return " and ".join(parts) or "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`allow`: all that `role` may do. `deny`: all that needs `role` or a higher one. `origin` names whose rule it is: user ada, group ops."""

    id: int
    effect: Effect
    role: Role
    selector: Selector = field(default_factory=Selector)
    origin: str = ""

    def reaches(self, action: Action) -> bool:
        """Whether it decides about this action, for the jobs that it is for."""
        needed = MINIMUM[action].rank
        return needed <= self.role.rank if self.effect is Effect.ALLOW else needed >= self.role.rank

    def covers(self, action: Action, target: Target | None) -> bool:
        """Whether it decides about this action on this target."""
        return self.reaches(action) and self.selector.fits(target)

    def __str__(self) -> str:
        return f"rule {self.id} of {self.origin}: {self.effect} {self.role} for {self.selector}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """An account with its own rules and those of its groups. `ceiling` bounds what a token of theirs may do; None: the person signed in.

    `signs_in` is false for an account without a password and without an identity at an OpenID provider: only tokens stand for it.
    """

    name: str
    enabled: bool = True
    signs_in: bool = True
    has_password: bool = True
    rules: tuple[Rule, ...] = ()
    ceiling: Rule | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether it is allowed, and why; `rule` is the one that decided."""

    allowed: bool
    reason: str
    rule: Rule | None = None


def may(person: Person, action: Action, target: Target | None = None) -> Verdict:
    """The decision. An action of OF_CLUSTER has no target."""
    if action in OF_CLUSTER:
        target = None
    if not person.enabled:
        return Verdict(False, f"the account {person.name} is disabled")
    if worker_type := worker_type_of(person):
        reason = (
            f"the token of {person.name} is for external work of worker_type {worker_type!r} only; use another token"
        )
        return Verdict(False, reason)
    if person.ceiling is not None and not person.ceiling.covers(action, target):
        return Verdict(
            False, f"the token of {person.name} is limited to {person.ceiling.role} for {person.ceiling.selector}"
        )
    decisive = sorted((rule for rule in person.rules if rule.covers(action, target)), key=lambda rule: rule.id)
    for rule in decisive:
        if rule.effect is Effect.DENY:
            return Verdict(False, str(rule), rule)
    if decisive:
        return Verdict(True, str(decisive[0]), decisive[0])
    return Verdict(False, f"no rule gives {person.name} {MINIMUM[action]} for this")


def may_every(person: Person, action: Action, part: Target) -> Verdict:
    """The decision about all jobs of the name and labels of `part` together, whatever else they have: a rule that denies one of them counts.

    Their runs have any scope, so a rule or a token for one scope allows nothing here.
    """
    verdict = may(person, action, replace(part, scope="", scope_id=""))
    denying = (r for r in person.rules if r.effect is Effect.DENY and r.reaches(action) and r.selector.can_fit(part))
    rule = min(denying, key=lambda rule: rule.id, default=None)
    return Verdict(False, str(rule), rule) if verdict.allowed and rule is not None else verdict


def may_by_some_labels(person: Person, action: Action, part: Target) -> bool:
    """Whether there can be labels of the job of `part`, which has none here since they are not known, with which the action is allowed."""
    reaching = [rule for rule in person.rules if rule.reaches(action)]
    denied = any(rule.effect is Effect.DENY and rule.selector.fits(part) for rule in reaching)
    allowing = (replace(rule.selector, labels={}) for rule in reaching if rule.effect is Effect.ALLOW)
    return not denied and any(selector.fits(part) for selector in allowing)


def may_somewhere(person: Person, action: Action) -> Verdict:
    """Whether there can be a target on which the action is allowed."""
    if not is_restricted(person, action) or worker_type_of(person):
        return may(person, action)
    allowed = [rule for rule in person.rules if rule.effect is Effect.ALLOW and rule.reaches(action)]
    denied = [rule for rule in person.rules if rule.effect is Effect.DENY and rule.covers(action, None)]
    ceiling = person.ceiling
    if not person.enabled or (ceiling is not None and not ceiling.reaches(action)) or denied or not allowed:
        return may(person, action)
    return Verdict(True, str(allowed[0]), allowed[0])


def is_restricted(person: Person, action: Action) -> bool:
    """Whether the decision depends on the target: a rule that denies, or the token, is for certain jobs only, or what allows is."""
    if action in OF_CLUSTER:
        return False
    reaching = [rule for rule in person.rules if rule.reaches(action)]
    allowing = [rule.selector.everything for rule in reaching if rule.effect is Effect.ALLOW]
    narrowing = [rule for rule in reaching if rule.effect is Effect.DENY]
    if person.ceiling is not None and person.ceiling.reaches(action):
        narrowing.append(person.ceiling)
    if any(not rule.selector.everything for rule in narrowing):
        return True
    # Beside a rule that allows it for every job, one that allows it for some adds nothing.
    return bool(allowing) and not any(allowing)


def worker_type_of(person: Person) -> str:
    """The type of external steps that the token is for, and nothing else; "" = it is no token of an external worker."""
    ceiling = person.ceiling
    return ceiling.selector.scope_id if ceiling is not None and ceiling.selector.scope == WORKER else ""


def as_worker(person: Person) -> Person:
    """The person as one who does external work: a token for a type of steps is bounded by its role alone, as steps of every job have types."""
    if not worker_type_of(person):
        return person
    assert person.ceiling is not None, "only a token has a worker type"
    return replace(person, ceiling=replace(person.ceiling, selector=Selector()))


def highest_role(person: Person) -> Role | None:
    """The highest role of any rule that allows something, as far as the token goes; None without such a rule."""
    roles = [rule.role for rule in person.rules if rule.effect is Effect.ALLOW]
    if not roles:
        return None
    highest = max(roles, key=lambda role: role.rank)
    return highest if person.ceiling is None else min(highest, person.ceiling.role, key=lambda role: role.rank)


def access_mark(person: Person) -> str:
    """Equal for people who may do and see the same by their own rules and those of their groups."""
    rules = [*person.rules, *([] if person.ceiling is None else [person.ceiling])]
    parts = {
        repr(
            (
                rule is person.ceiling,
                rule.effect.value,
                rule.role.value,
                one.job,
                sorted(one.labels.items()),
                one.scope,
                one.scope_id,
            )
        )
        for rule, one in ((rule, rule.selector) for rule in rules)
    }
    return sha256("\n".join(sorted(parts)).encode()).hexdigest()[:32]


def is_narrowed(person: Person) -> bool:
    """Whether a token leaves out something that its account may do."""
    ceiling = person.ceiling
    if ceiling is None:
        return False
    account = highest_role(replace(person, ceiling=None))
    return not ceiling.selector.everything or (account is not None and account.rank > ceiling.role.rank)


def can_administer(person: Person) -> bool:
    """Whether a person can sign in to this account and change accounts: the last such account must remain."""
    return person.signs_in and may(person, Action.ACCOUNTS).allowed


def check_change(before: Iterable[Person], after: Iterable[Person], *, actor: str) -> None:
    """Refuses a change of accounts after which no account could change them, or the actor no longer could. Raises RESOURCE_INVALID_STATE.

    Without an administrator before (the first one is yet to come) everything is allowed.
    """
    were = {person.name for person in before if can_administer(person)}
    remain = {person.name for person in after if can_administer(person)}
    if were and not remain:
        message = (
            "this would leave no enabled account with role admin for everything; give another account that role first"
        )
        raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
    if actor in were and actor not in remain:
        message = f"this would take the role admin from your own account {actor}; let another administrator do it"
        raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)
