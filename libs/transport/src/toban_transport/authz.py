"""Who may call what, by the rules in the protos (rules.py), denied by default. Pure.

Callers are service names out of the SPIFFE id of a certificate: `spiffe://<trust domain>/<service>`, of executors also
`spiffe://<trust domain>/executor/<group>` (docs/executor-groups.md). An
external worker may be restricted to one type of steps: `spiffe://<trust domain>/external-worker/<worker_type>`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.executor_group import DEFAULT_GROUP, GROUP_NAME, check_name
from toban_transport.rules import RULES

COORDINATOR = "coordinator"
EXECUTOR = "executor"
LOG_ARCHIVER = "log-archiver"
ADMIN_WEB = "admin-web"
SIGNER = "signer"
ADMIN_CLI = "admin-cli"
EXTERNAL_WORKER = "external-worker"

SERVICES = frozenset({COORDINATOR, EXECUTOR, LOG_ARCHIVER, ADMIN_WEB, SIGNER, ADMIN_CLI, EXTERNAL_WORKER})
"""Every name that a certificate of ours may carry."""

SHARED = "shared"
"""`spiffe://<trust domain>/shared/<name>` names a certificate that several services have in common, where that is allowed."""
SHARED_BY = frozenset({COORDINATOR, EXECUTOR, LOG_ARCHIVER, ADMIN_WEB})
"""Whom it may stand for: the services of one installation. People and external workers have certificates of their own."""

Rules = Mapping[str, frozenset[str]]
# As `worker_type` of a step (toban_manifests.values.NAME).
_WORKER_TYPE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,99}")
METHOD_RULES: Rules = {
    **{method: rule.callers for method, rule in RULES.items()},
    **{f"/grpc.health.v1.Health/{method}": SERVICES for method in ("Check", "List", "Watch")},
}
"""Full method name → callers. A server refuses to start on a method without a rule."""


def name_of(spiffe_ids: Sequence[str], trust_domain: str) -> str:
    """What a certificate names: a service, `executor/<group>`, `external-worker/<worker_type>` or `shared/<name>`.

    Raises PERMISSION_DENIED unless it has exactly one id, of our trust domain.
    """
    if len(spiffe_ids) != 1:
        raise _denied(f"the client certificate has {len(spiffe_ids)} SPIFFE ids; issue one with exactly one")
    spiffe_id = spiffe_ids[0]
    prefix = f"spiffe://{trust_domain}/"
    if not spiffe_id.startswith(prefix):
        raise _denied(f"the client certificate's id {spiffe_id!r} is not of trust domain {trust_domain!r}")
    name = spiffe_id[len(prefix) :]
    if service_of(name) not in SERVICES and not is_shared(name):
        raise _denied(f"the client certificate's id {spiffe_id!r} names no service of ours")
    return name


def _is_group(name: str) -> bool:
    """Whether this is `executor/<group>`. The default group has the certificate `executor`, and no second one."""
    first, slash, group = name.partition("/")
    return first == EXECUTOR and bool(slash) and group != DEFAULT_GROUP and GROUP_NAME.fullmatch(group) is not None


def group_of(name: str) -> str:
    """The group of executors that a name of `name_of` stands for. A shared certificate is one of the default group."""
    return name.partition("/")[2] if _is_group(name) else DEFAULT_GROUP


def executor_name(group: str) -> str:
    """What the certificate of a group of executors names. Raises INVALID_ARGUMENT for a name that no group has."""
    return EXECUTOR if group == DEFAULT_GROUP else f"{EXECUTOR}/{check_name(group)}"


def is_shared(name: str) -> bool:
    """Whether this is `shared/<name>`, with a name of letters, digits, dots and dashes."""
    first, slash, rest = name.partition("/")
    return first == SHARED and bool(slash) and _NAME.fullmatch(rest) is not None


def service_of(name: str) -> str:
    """The service of a certificate's name: an executor is one whatever its group, an external worker whatever its type. Other names stay
    as they are."""
    if worker_type_of(name):
        return EXTERNAL_WORKER
    return EXECUTOR if _is_group(name) else name


def worker_type_of(name: str) -> str:
    """The one type of steps that a certificate is for; "" = it is not restricted to one."""
    first, _, rest = name.partition("/")
    return rest if first == EXTERNAL_WORKER and _WORKER_TYPE.fullmatch(rest) else ""


def services_of(spiffe_ids: Sequence[str], trust_domain: str, *, shared: bool = False) -> frozenset[str]:
    """The services that a certificate stands for: one, or with `shared` those of SHARED_BY for a shared one. Raises PERMISSION_DENIED."""
    name = name_of(spiffe_ids, trust_domain)
    if not is_shared(name):
        return frozenset({service_of(name)})
    if not shared:
        raise _denied(
            f"the client certificate is a shared one ({name}) and this server takes none; "
            "issue one a service, or set SCHEDULER_TLS_SHARED_IDENTITY=1 for every service"
        )
    return SHARED_BY


def authorise(
    method: str, spiffe_ids: Sequence[str], trust_domain: str, rules: Rules = METHOD_RULES, *, shared: bool = False
) -> str:
    """What the caller's certificate names, when that may call `method`; raises PERMISSION_DENIED for everything else.

    With `shared` a shared certificate may do what any service of SHARED_BY may.
    """
    callers = services_of(spiffe_ids, trust_domain, shared=shared)
    name = name_of(spiffe_ids, trust_domain)
    if not callers & rules.get(method, frozenset()):
        raise _denied(
            f"service {name!r} may not call {method}; {_who_may(rules.get(method, frozenset()), trust_domain)}"
        )
    return name


def _who_may(callers: Collection[str], trust_domain: str) -> str:
    if not callers:
        return "no service may"
    names = sorted(callers)
    ids = " or ".join(f"spiffe://{trust_domain}/{name}" for name in names)
    who = f"use the certificate of {' or '.join(names)} ({ids})"
    if ADMIN_CLI not in callers:
        return who
    # Only people choose their certificate; services get theirs from their deployment.
    return (
        f"{who}, in the folder that TOBAN_TLS_DIR names: {ADMIN_CLI}/ of the stack's certificates, "
        f"or the Secret of that service (the chart's default name: scheduler-grpc-tls-{ADMIN_CLI})"
    )


def check_rules(registered: Collection[str], rules: Rules = METHOD_RULES) -> None:
    """Raise CONFIG_INVALID when a registered method has no callers."""
    open_methods = sorted(method for method in registered if not rules.get(method))
    if open_methods:
        raise TobanError(
            ErrorCode.CONFIG_INVALID, f"no callers in the rule of {', '.join(open_methods)}; add them to its proto"
        )


def _denied(message: str) -> TobanError:
    return TobanError(ErrorCode.PERMISSION_DENIED, message)
