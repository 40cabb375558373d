"""Steps that programs of the executor itself carry out, ready for one incarnation: http, container, kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from toban_domain.errors import ErrorCode, TobanError
from toban_executor.adapters.container_steps import ContainerSteps
from toban_executor.adapters.http_steps import HttpSteps
from toban_executor.adapters.kubernetes_steps import KubernetesSettings, KubernetesSteps
from toban_executor.config import ExecutorConfig
from toban_executor.decide.models import StartOrder
from toban_executor.ports.guards import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSteps:
    """`complete` gives such steps of an order their programs. The configuration has the label
    of what runs here, `prepared` the earlier incarnations that have left nothing in a cluster;
    `leftovers`: some have left something."""

    config: ExecutorConfig
    prepared: Prepared
    complete: Callable[[StartOrder], StartOrder]
    containers: ContainerSteps
    kubernetes: KubernetesSteps | None
    leftovers: bool


def own_steps(config: ExecutorConfig, prepared: Prepared, *, stopped: Callable[[], bool]) -> OwnSteps:
    """What this configuration has. It asks engine and cluster, and waits for pods until `stopped`: call it in a thread.

    Raises TobanError for what cannot be used, or does not respond.
    """
    if config.container_engine is not None and config.kubernetes_api:
        text = "SCHEDULER_CONTAINER_ENGINE and SCHEDULER_KUBERNETES_API are both set; an executor has one of them, so start two"
        raise TobanError(ErrorCode.CONFIG_INVALID, text)
    http = HttpSteps(allow=config.http_step_allow, ca_file=config.http_step_ca_file)
    containers = ContainerSteps(
        socket=config.container_engine,
        mounts=config.container_mounts,
        state_dir=prepared.state_dir,
        incarnation=prepared.guards.incarnation,
        earlier=prepared.settled,
    )
    left: set[str] = set()
    labels, kubernetes = {**config.labels, **containers.labels}, _kubernetes(config, prepared)
    if kubernetes is not None:
        labels |= kubernetes.labels
        left = kubernetes.end_earlier(prepared.settled, stopped=stopped)
        # Their outcomes are not in the registration, which would take other runs for lost.
        settled = {one: empty and not left for one, empty in prepared.settled.items()}
        prepared = replace(prepared, settled=settled)
    last = containers if kubernetes is None else kubernetes
    return OwnSteps(
        config=config.model_copy(update={"labels": labels}),
        prepared=prepared,
        complete=lambda order: last.complete(http.complete(order)),
        containers=containers,
        kubernetes=kubernetes,
        leftovers=bool(left),
    )


def _kubernetes(config: ExecutorConfig, prepared: Prepared) -> KubernetesSteps | None:
    if not config.kubernetes_api:
        return None
    settings = KubernetesSettings(
        api=config.kubernetes_api,
        token_file=config.kubernetes_token_file,
        ca_file=config.kubernetes_ca_file,
        owner=config.kubernetes_owner,
        namespaces=config.kubernetes_namespaces,
        images=config.kubernetes_images,
        service_accounts=config.kubernetes_service_accounts,
        margin=config.kubernetes_margin_seconds,
        settle=config.kubernetes_settle_seconds,
    )
    return KubernetesSteps(settings, incarnation=prepared.guards.incarnation)
