"""Who may make a call: the person of its credential, by PERSON_RULES; without one only the certificate of admin-cli, or what precedes a sign-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from toban_coordinator.app.people.credentials import Credentials, actor_name
from toban_coordinator.app.people.further_needs import EVERYTHING, Further
from toban_coordinator.app.people.own_account import OwnCall
from toban_coordinator.app.people.targets import find_by_key, find_targets
from toban_coordinator.app.runs.change_runs import Rights, every_right
from toban_coordinator.decide.schedules.coming_load import Use
from toban_coordinator.server.person_targets import LISTED, NAMED, WITH_RUNS, also_needs
from toban_domain.access import (
    Action,
    Person,
    Target,
    Verdict,
    as_worker,
    is_narrowed,
    is_restricted,
    may,
    may_every,
    may_somewhere,
    worker_type_of,
)
from toban_domain.errors import ErrorCode, TobanError
from toban_observability.context import Caller
from toban_store.pool import Pool
from toban_transport.authz import ADMIN_CLI, EXTERNAL_WORKER, service_of
from toban_transport.person_rules import CREDENTIAL, PERSON_RULES
from toban_transport.rules import About, PersonRule
from toban_transport.server_middleware import Admission

START_RUNS = "/toban_proto.v1.JobControl/StartRuns"
RERUN_RUNS = "/toban_proto.v1.JobControl/RerunRuns"
# Names runs and tenants that share limits and turns with the run.
EXPLAIN_RUN = "/toban_proto.v1.JobReader/ExplainRun"
LIST_SECRETS = "/toban_proto.v1.Operations/ListSecrets"
# Counts runs of any scope.
GET_JOB_DAYS = "/toban_proto.v1.JobReader/GetJobDays"
# Jobs and scopes that are decided about at a time: other calls are served in between.
USES_AT_ONCE = 500


class PersonAdmission:
    """A call of a person that was allowed."""

    def __init__(self, check: PeopleCheck, method: str, secret: str, address: str) -> None:
        self._check = check
        self._method = method
        self._secret = secret
        self._address = address
        self._targets: Sequence[Target] = ()
        self._further: Sequence[Further] = ()
        self._person = Person(name="", enabled=False)

    @property
    def actor(self) -> str:
        """The person, for the audit."""
        return actor_name(self._person)

    async def decide(self, request: Callable[[], Any]) -> None:
        """Raises UNAUTHENTICATED or PERMISSION_DENIED. Parses the request only for a person who has the role for some job."""
        await self._resolve()
        rule = PERSON_RULES[self._method]
        self._require(rule)
        if rule.about is About.JOBS and is_restricted(self._person, rule.action):
            found = await find_targets(self._check.pool, NAMED[self._method](request()))
            self._targets, self._further = found.about, found.further
            self._require(rule)
        if self._method == RERUN_RUNS and is_restricted(self._person, rule.action) and request().priority > 0:
            # Which runs and jobs it will be is not known yet.
            whole = may_every(self._person, Action.EDIT, EVERYTHING)
            self._allow(rule, [_with_reason(whole, "a priority above 0 lets runs of others wait")])
        if self._method == START_RUNS and (further := also_needs(request())) is not None:
            self._require(PersonRule(further, About.CLUSTER))

    async def recheck(self) -> None:
        """The same decision with the person as they are now."""
        await self._resolve()
        self._require(PERSON_RULES[self._method])

    async def visible(self, answer: Any) -> Any:
        """A list without the items that the person may not see."""
        if self.sees_every_run:
            return answer
        for field, kind, key in LISTED.get(self._method, ()):
            items = list(getattr(answer, field))
            found = await find_by_key(self._check.pool, kind, [str(getattr(one, key)) for one in items])
            kept = [one for one in items if self._may_see(found.get(str(getattr(one, key))))]
            answer.ClearField(field)
            getattr(answer, field).extend(kept)
        if self._method == EXPLAIN_RUN:
            for limit in answer.limits:
                limit.ClearField("holders")
            if answer.HasField("turn"):
                answer.turn.ClearField("scopes")
        if self._method == LIST_SECRETS:
            await self._leave_own_secrets(answer)
        if self._method in WITH_RUNS and _depends_on_scope(self._person):
            for job in getattr(answer, "jobs", [answer]):
                for name in ("schedules", "last_run", "next_run_at", "recent_runs"):
                    job.ClearField(name)
        if self._method == GET_JOB_DAYS and _depends_on_scope(self._person):
            answer.ClearField("days")
        return answer

    async def _leave_own_secrets(self, answer: Any) -> None:
        """Those that any job may use, and those that jobs of the person may use, without the names of other jobs and the last use by them."""
        names = {name for secret in answer.secrets for name in (*secret.jobs, *secret.used_by)}
        found = await find_by_key(self._check.pool, "job", sorted(names))
        own = {name for name in names if self._may_see(found.get(name))}
        kept = [secret for secret in answer.secrets if not secret.jobs or own.intersection(secret.jobs)]
        for secret in kept:
            # The time of a run that the person may not see is not shown, either.
            if not own.issuperset((*secret.jobs, *secret.used_by)) or _depends_on_scope(self._person):
                secret.ClearField("last_used_at")
            for field in ("jobs", "used_by"):
                left = [name for name in getattr(secret, field) if name in own]
                secret.ClearField(field)
                getattr(secret, field).extend(left)
        answer.ClearField("secrets")
        answer.secrets.extend(kept)

    def _may_see(self, target: Target | None) -> bool:
        return target is not None and may(self._person, Action.VIEW, target).allowed

    async def _resolve(self) -> None:
        self._person = await self._check.credentials.person(self._secret, address=self._address)

    def _require(self, rule: PersonRule) -> None:
        self._allow(rule, self._verdicts(rule))

    def _allow(self, rule: PersonRule, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            if not verdict.allowed:
                what = "manage the account" if rule.about is About.OWN else f"{rule.action} here"
                message = f"{self._person.name} may not {what}: {verdict.reason}"
                raise TobanError(ErrorCode.PERMISSION_DENIED, message, detail={"user": self._person.name})

    def _verdicts(self, rule: PersonRule) -> Sequence[Verdict]:
        person = as_worker(self._person) if rule.about is About.WORK else self._person
        action = rule.action
        if rule.about is About.OWN:
            return [
                Verdict(not is_narrowed(person), "the token is narrower than the account; use a wider one, or the site")
            ]
        somewhere = may_somewhere(person, action)
        if not is_restricted(person, action) or rule.about in (About.ANY, About.LIST, About.EACH):
            return [somewhere]
        if rule.about is About.JOBS:
            further = (_with_reason(_may_further(person, one), one.why) for one in self._further)
            return [somewhere, *(may(person, action, target) for target in self._targets), *further]
        return [may(person, action), Verdict(False, "this concerns every job, and a rule leaves some of them out")]

    @property
    def sees_every_run(self) -> bool:
        """Whether no rule leaves a job, or a run of one, out."""
        return not is_restricted(self._person, Action.VIEW)

    @property
    def sees_every_scope(self) -> bool:
        """Whether no rule of the person names a scope."""
        return not _depends_on_scope(self._person)

    @property
    def worker_type(self) -> str:
        """The one type of external steps that the person's token is for; "" = it is not restricted to one."""
        return worker_type_of(self._person)

    def own(self) -> OwnCall:
        """For methods about the person's account."""
        return OwnCall(person=self._person, secret=self._secret, address=self._address)

    @property
    def raises_priority(self) -> bool:
        """Whether the person may let runs of others wait for a run of some job of theirs."""
        return not is_restricted(self._person, Action.RUN) or may_every(self._person, Action.EDIT, EVERYTHING).allowed

    async def seen(self, uses: Sequence[Use]) -> frozenset[Use] | None:
        """Those that the person may see; None = all."""
        if self.sees_every_run:
            return None
        found: set[Use] = set()
        for first in range(0, len(uses), USES_AT_ONCE):
            part = uses[first : first + USES_AT_ONCE]
            jobs = await find_by_key(self._check.pool, "job", sorted({use.job for use in part}))
            targets = {
                use: replace(jobs[use.job], scope=use.scope, scope_id=use.scope_id) for use in part if use.job in jobs
            }
            found.update(use for use, target in targets.items() if self._may_see(target))
        return frozenset(found)

    async def rights(self, action: Action, runs: Sequence[int]) -> Mapping[int, bool]:
        """Those of `runs` that the person may see, and whether they may do this with each."""
        if action is Action.VIEW and not is_restricted(self._person, action):
            # Decided for all runs when the call was admitted.
            return dict.fromkeys(runs, True)
        found = await find_by_key(self._check.pool, "run", [str(run) for run in runs])
        seen = {run: target for run in runs if self._may_see(target := found.get(str(run))) and target is not None}
        return {run: may(self._person, action, target).allowed for run, target in seen.items()}


def _may_further(person: Person, need: Further) -> Verdict:
    return (may_every if need.every else may)(person, need.action, need.target)


def _with_reason(verdict: Verdict, why: str) -> Verdict:
    return verdict if verdict.allowed else replace(verdict, reason=f"{why}; {verdict.reason}")


_admission: ContextVar[PersonAdmission | None] = ContextVar("admission", default=None)


def run_rights(action: Action) -> Rights:
    """What the person of the call that the current task serves may do with runs; without a person everything."""
    admission = _admission.get()
    if admission is None:
        return every_right

    async def rights(runs: Sequence[int]) -> Mapping[int, bool]:
        return await admission.rights(action, runs)

    return rights


def sees_every_run() -> bool:
    """Whether no rule leaves runs out for the person of the call that the current task serves; without a person true."""
    admission = _admission.get()
    return admission is None or admission.sees_every_run


async def seen_uses(uses: Sequence[Use]) -> frozenset[Use] | None:
    """Those jobs and scopes of schedules that the person of the call that the current task serves may see; None = all."""
    admission = _admission.get()
    return None if admission is None else await admission.seen(uses)


def may_see_every_scope() -> bool:
    """Whether what the person of the call that the current task serves may see does not depend on scopes; without a person true."""
    admission = _admission.get()
    return admission is None or admission.sees_every_scope


def may_raise_priority() -> bool:
    """Whether the person of the call that the current task serves may let runs of others wait; without a person true."""
    admission = _admission.get()
    return admission is None or admission.raises_priority


def own_call() -> OwnCall:
    """The person of the call that the current task serves. Raises UNAUTHENTICATED for a certificate alone, which has no account."""
    admission = _admission.get()
    if admission is None:
        message = "a certificate has no account of its own; give an API token (TOBAN_TOKEN), or name an account as an administrator"
        raise TobanError(ErrorCode.UNAUTHENTICATED, message)
    return admission.own()


def granted_worker_type() -> str:
    """The type of external steps that the token of the call that the current task serves is for; "" = every one."""
    admission = _admission.get()
    return "" if admission is None else admission.worker_type


class PeopleCheck:
    """The PersonCheck of a coordinator."""

    def __init__(self, *, pool: Pool, credentials: Credentials) -> None:
        self.pool = pool
        self.credentials = credentials

    async def admit(
        self, method: str, *, caller: Caller, about: Callable[[], Any], given: Mapping[str, str]
    ) -> Admission | None:
        """None for a call without a person, which its certificate allows.

        Raises UNAUTHENTICATED, PERMISSION_DENIED, and what reading a manifest raises.
        """
        if method not in PERSON_RULES:
            return None
        secret = given.get(CREDENTIAL, "")
        if not secret:
            if service_of(caller.service) in (ADMIN_CLI, EXTERNAL_WORKER):
                return None
            message = f"{caller.service} may call this for a person only; sign in"
            raise TobanError(ErrorCode.UNAUTHENTICATED, message, detail={"sign_in": True})
        admission = PersonAdmission(self, method, secret, caller.address)
        await admission.decide(about)
        _admission.set(admission)
        return admission


def _depends_on_scope(person: Person) -> bool:
    rules = [*person.rules, *([person.ceiling] if person.ceiling is not None else [])]
    return any(rule.selector.scope for rule in rules)
