"""Who may call what: one table of callers per method, denied by default. Pure.

Callers are service names out of the SPIFFE id of a certificate: `spiffe://<trust domain>/<service>`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from toban_domain.errors import ErrorCode, TobanError

COORDINATOR = "coordinator"
EXECUTOR = "executor"
LOG_ARCHIVER = "log-archiver"
ADMIN_WEB = "admin-web"
ADMIN_CLI = "admin-cli"
EXTERNAL_WORKER = "external-worker"

SERVICES = frozenset({COORDINATOR, EXECUTOR, LOG_ARCHIVER, ADMIN_WEB, ADMIN_CLI, EXTERNAL_WORKER})
"""Every name that a certificate of ours may carry."""

Rules = Mapping[str, frozenset[str]]
# The site only reads: its certificate is worth no more than what its pages show.
_READERS = frozenset({ADMIN_WEB, ADMIN_CLI})


def _rules(service: str, callers: Iterable[str], methods: str) -> dict[str, frozenset[str]]:
    return {f"/{service}/{method}": frozenset(callers) for method in methods.split()}


METHOD_RULES: Rules = {
    **_rules("toban_proto.v1.WorkerService", [COORDINATOR], "Ping GetStatus StartJob CancelJob Drain Revoke"),
    **_rules(
        "toban_proto.v1.ExecutorGateway",
        [EXECUTOR],
        "Register Heartbeat Report ConfirmContinuation WatchSettings",
    ),
    **_rules("toban_proto.v1.ArchiveGateway", [LOG_ARCHIVER], "ListSealed WatchSettings"),
    **_rules(
        "toban_proto.v1.JobReader",
        _READERS,
        "ListJobs GetJob ListSchedules ListRuns GetRun WatchRun ListExecutors GetCluster ExplainRun GetSchedule NextSlots ListFires "
        "ListTriggers ListEvents",
    ),
    **_rules(
        "toban_proto.v1.JobControl",
        [ADMIN_CLI],
        "Apply StartRuns CancelRun RerunRun DeleteJob PauseSchedule ResumeSchedule EmitEvent DeleteSchedule DeleteTrigger",
    ),
    **_rules(
        "toban_proto.v1.Operations",
        [ADMIN_CLI],
        "ListSettings UpdateSetting ListAudit DetachExecutor DrainExecutor UndrainExecutor DemoteLeader SetLimit Diagnose",
    ),
    **_rules("toban_proto.v1.Accounts", [ADMIN_CLI], "Authenticate ListUsers"),
    **_rules(
        "toban_proto.v1.ExternalWork",
        [EXTERNAL_WORKER],
        "Claim Heartbeat UpdateProgress Complete Fail AcknowledgeCancel",
    ),
    **_rules("toban_proto.v1.Peer", [COORDINATOR], "Ping GetStatus Watch"),
    **_rules("toban_proto.v1.LogIngest", [EXECUTOR], "Append"),
    **_rules("toban_proto.v1.LogReader", _READERS, "Read Describe"),
    **_rules("toban_proto.v1.LogArchive", [ADMIN_CLI], "Status RunArchive Verify"),
    **_rules("grpc.health.v1.Health", SERVICES, "Check List Watch"),
}
"""Full method name → callers. A server refuses to start on a method without a rule, and on a rule without a method."""


def service_of(spiffe_ids: Sequence[str], trust_domain: str) -> str:
    """The service that a certificate names. Raises PERMISSION_DENIED unless it has exactly one id, of our trust domain and a known service."""
    if len(spiffe_ids) != 1:
        raise _denied(f"the client certificate has {len(spiffe_ids)} SPIFFE ids; issue one with exactly one")
    spiffe_id = spiffe_ids[0]
    prefix = f"spiffe://{trust_domain}/"
    if not spiffe_id.startswith(prefix):
        raise _denied(f"the client certificate's id {spiffe_id!r} is not of trust domain {trust_domain!r}")
    service = spiffe_id[len(prefix) :]
    if service not in SERVICES:
        raise _denied(f"the client certificate's id {spiffe_id!r} names no service of ours")
    return service


def authorise(method: str, spiffe_ids: Sequence[str], trust_domain: str, rules: Rules = METHOD_RULES) -> str:
    """The calling service when it may call `method`; raises PERMISSION_DENIED for everything else."""
    service = service_of(spiffe_ids, trust_domain)
    if service not in rules.get(method, frozenset()):
        raise _denied(f"service {service!r} may not call {method}; use the certificate of a service that may")
    return service


def check_rules(registered: Collection[str], known: Collection[str], rules: Rules = METHOD_RULES) -> None:
    """Raise CONFIG_INVALID when a registered method has no callers, or a rule names a method that is not among `known`."""
    open_methods = sorted(method for method in registered if not rules.get(method))
    if open_methods:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"no rule in METHOD_RULES for {', '.join(open_methods)}; add one")
    stale = sorted(set(rules) - set(known) - set(registered))
    if stale:
        raise TobanError(ErrorCode.CONFIG_INVALID, f"METHOD_RULES names no method: {', '.join(stale)}; remove it")


def _denied(message: str) -> TobanError:
    return TobanError(ErrorCode.PERMISSION_DENIED, message)
