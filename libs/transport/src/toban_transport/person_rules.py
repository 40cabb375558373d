"""Which action of a person each method is, beside the table of callers (authz.py). Pure.

Every method that admin-web or admin-cli may call has a row; a server with such a method without a row refuses to start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError
from toban_transport.authz import ADMIN_CLI, ADMIN_WEB, METHOD_RULES, Rules

CREDENTIAL = "toban-credential"
"""Metadata of a call for a person: the secret of a session, or an API token."""
ADDRESS = "toban-address"
"""Metadata beside it: where the person is, as far as the caller knows."""


class About(StrEnum):
    """What a call is about, and so which of a person's rules decide."""

    CLUSTER = "cluster"
    """Everything: no rule of the person may leave a job out."""
    ANY = "any"
    """Nothing that belongs to a job: the role for any job will do."""
    JOBS = "jobs"
    """The jobs that the request names, by themselves or by a run, schedule or trigger."""
    LIST = "list"
    """Many jobs: the answer leaves out what the person may not see."""
    EACH = "each"
    """Many runs that the call finds: each is checked by itself."""
    WORK = "work"
    """External work, whatever the job: as CLUSTER, and also with a token for one worker type, which the method checks."""
    OWN = "own"
    """The account of the person, whatever its role; a token must be as wide as the account."""


@dataclass(frozen=True, slots=True)
class PersonRule:
    """The action that a method is; MINIMUM has the role for it."""

    action: Action
    about: About


_COORDINATOR = "toban_proto.v1"


def _rules(service: str, action: Action, about: About, methods: str) -> dict[str, PersonRule]:
    return {f"/{_COORDINATOR}.{service}/{method}": PersonRule(action, about) for method in methods.split()}


PERSON_RULES: Mapping[str, PersonRule] = {
    **_rules("JobReader", Action.VIEW, About.LIST, "ListJobs ListSchedules ListRuns ListTriggers GetOverview"),
    **_rules(
        "JobReader",
        Action.VIEW,
        About.JOBS,
        "GetJob ListJobVersions GetJobDays GetSchedule GetRun WatchRun ExplainRun NextSlots ListFires",
    ),
    **_rules("JobReader", Action.VIEW, About.EACH, "GetReadTicket"),
    **_rules("JobReader", Action.VIEW, About.ANY, "ListExecutors GetCluster"),
    # Events start whatever triggers name, so they belong to no job.
    **_rules("JobReader", Action.VIEW, About.CLUSTER, "ListEvents"),
    **_rules("JobControl", Action.RUN, About.JOBS, "StartRuns RerunRun NoteRun"),
    **_rules("JobControl", Action.RUN, About.EACH, "RerunRuns"),
    **_rules("JobControl", Action.CANCEL, About.EACH, "CancelRuns"),
    **_rules("JobControl", Action.RUN, About.CLUSTER, "EmitEvent"),
    **_rules("JobControl", Action.CANCEL, About.JOBS, "CancelRun DeclareRunLost"),
    **_rules(
        "JobControl",
        Action.EDIT,
        About.JOBS,
        "Apply DeleteJob DisableJob EnableJob PauseSchedule ResumeSchedule DeleteSchedule DeleteTrigger",
    ),
    **_rules("Operations", Action.VIEW, About.ANY, "ListSettings"),
    # Names of secrets, for those who write definitions.
    **_rules("Operations", Action.EDIT, About.ANY, "ListSecrets"),
    **_rules("Operations", Action.OPERATE, About.CLUSTER, "SetSecret RemoveSecret RotateSecrets"),
    **_rules("Operations", Action.VIEW, About.ANY, "ListExecutorGroups"),
    # They name runs of any job.
    **_rules("Operations", Action.VIEW, About.CLUSTER, "ListLimits GetLimit"),
    # Programs report the health of what they watch.
    **_rules("Operations", Action.RUN, About.CLUSTER, "SignalLimit"),
    **_rules(
        "Operations",
        Action.OPERATE,
        About.CLUSTER,
        "UpdateSetting ListAudit DetachExecutor DrainExecutor UndrainExecutor DemoteLeader AdoptEpoch SetLimit SetBreaker "
        "Diagnose VerifyAudit SetExecutorGroup RemoveExecutorGroup",
    ),
    **_rules(
        "Accounts",
        Action.ACCOUNTS,
        About.CLUSTER,
        "CreateBootstrapLink ListUsers AddUser UpdateUser DeleteUser EndSessions ListGroups UpdateGroup ListRules AddRule RemoveRule May "
        "CreateToken ListTokens RevokeToken LinkUser UnlinkUser",
    ),
    **_rules(
        "Accounts",
        Action.VIEW,
        About.OWN,
        "ChangeOwnPassword ListOwnSessions EndOwnSession CreateOwnToken ListOwnTokens RevokeOwnToken",
    ),
    # Deliveries name runs of any job.
    **_rules("Webhooks", Action.VIEW, About.CLUSTER, "ListWebhooks ListDeliveries"),
    **_rules("Webhooks", Action.OPERATE, About.CLUSTER, "SetWebhook RemoveWebhook TestWebhook Redeliver"),
    # Claims are of a type of worker, whatever the job. Workers with a certificate of their own have no person.
    **_rules("ExternalWork", Action.RUN, About.WORK, "Claim Heartbeat UpdateProgress Complete Fail AcknowledgeCancel"),
    **_rules("Hooks", Action.VIEW, About.CLUSTER, "ListHooks"),
    **_rules("Hooks", Action.OPERATE, About.CLUSTER, "SetHook RemoveHook TestHook"),
}
"""Full method name → action. With a certificate of admin-cli or external-worker and without a person, those of its METHOD_RULES are allowed."""

WITHOUT_PERSON = frozenset(
    f"/{_COORDINATOR}.{method}"
    for method in (
        *("Accounts/Authenticate", "Accounts/SignOut", "Accounts/GetAccountsState", "Accounts/RedeemBootstrapLink"),
        *("Accounts/StartOidcSignIn", "Accounts/SignInWithOidc"),
        *("WebhookOutbox/ClaimDeliveries", "WebhookOutbox/ConfirmDelivery"),
        "HookReceiver/ReceiveHook",
    )
)
"""What a person needs before they have signed in, where the secrets in the requests are the authority; and what the site does by itself, where
its certificate is."""

BY_TICKET = frozenset(f"/{_COORDINATOR}.LogReader/{method}" for method in ("Read", "Describe", "Search"))
"""What a log-archiver does for the read ticket in the request, which a coordinator signs for a person."""

BY_CERTIFICATE = frozenset(
    f"/{_COORDINATOR}.LogArchive/{method}" for method in ("Status", "RunArchive", "Verify", "Diagnose")
)
"""What the certificate of admin-cli alone allows."""


def check_person_rules(registered: Collection[str], rules: Rules = METHOD_RULES) -> None:
    """Raises CONFIG_INVALID when people may reach a registered method that has no row here."""
    decided = {*PERSON_RULES, *WITHOUT_PERSON, *BY_TICKET, *BY_CERTIFICATE}
    for_people = [method for method in registered if rules.get(method, frozenset()) & {ADMIN_WEB, ADMIN_CLI}]
    missing = sorted(method for method in for_people if method not in decided and "/grpc.health." not in method)
    if missing:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"no rule in PERSON_RULES for {', '.join(missing)}; add one")
