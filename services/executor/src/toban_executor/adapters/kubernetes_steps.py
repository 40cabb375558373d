"""The steps `type: kubernetes` of an order, made ready for their program; what is left of their Jobs is removed, with proof."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import STEPS_LABEL
from toban_domain.outcome import AttemptKey
from toban_executor.adapters import kubernetes_step_runner
from toban_executor.adapters.kubernetes_client import Api, ApiError, Cluster, remove_jobs
from toban_executor.decide.kubernetes_job import VARIABLE, job_name, labels, parse_access, selector
from toban_executor.decide.models import StartOrder, StepOrder
from toban_executor.guard.clock import boottime, pause
from toban_observability.logs import get_logger

_PROGRAM = (sys.executable, "-I", "-m", kubernetes_step_runner.__name__)
_LOOK_SECONDS = 0.5
_START_SECONDS = 60.0
_TOKENS = 100
"""Attempts that one list asks for: their tokens are in its address."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """SCHEDULER_KUBERNETES_*, by the ends of their names; `margin` is MARGIN_SECONDS, `settle` is SETTLE_SECONDS."""

    api: str
    token_file: Path
    ca_file: Path
    owner: str
    namespaces: str
    images: str
    service_accounts: str
    margin: float
    settle: float


class KubernetesSteps:
    """What an executor with the rights to start Jobs needs. `incarnation` is its own.

    Raises TobanError CONFIG_INVALID for what cannot be used or is not permitted, UNAVAILABLE while the API does not respond.
    """

    def __init__(self, settings: KubernetesSettings, *, incarnation: str) -> None:
        self._incarnation = incarnation
        self._margin = settings.margin
        lists = {name: getattr(settings, name) for name in ("owner", "namespaces", "images", "service_accounts")}
        try:
            self._access = parse_access(**lists)
        except ValueError as error:
            raise TobanError(ErrorCode.CONFIG_INVALID, str(error)) from None
        if not settings.api.startswith("https://"):
            text = f"{VARIABLE}API: {settings.api!r} does not begin with https://; the API gets a token"
            raise TobanError(ErrorCode.CONFIG_INVALID, text)
        cluster = Cluster(settings.api, str(settings.token_file.absolute()), str(settings.ca_file.absolute()))
        self._given: Mapping[str, Any] = {
            "access": lists,
            "namespaces": self._access.namespaces,
            "cluster": cluster._asdict(),
            "margin": settings.margin,
            "settle": settings.settle,
        }
        self._api = Api(cluster)
        self._check()

    @property
    def labels(self) -> dict[str, str]:
        """What selectors know of this executor."""
        return {STEPS_LABEL: "kubernetes"}

    def complete(self, order: StartOrder) -> StartOrder:
        """The order with programs for its kubernetes steps."""
        return replace(order, steps=tuple(self._step(order, index, step) for index, step in enumerate(order.steps)))

    def _step(self, order: StartOrder, index: int, step: StepOrder) -> StepOrder:
        if step.type != "kubernetes":
            return step
        try:
            kubernetes = json.loads(step.stdin)
        except ValueError:
            # Refused as a step without a program.
            return step._replace(argv=(), stdin="")
        marks = labels(
            owner=self._access.owner,
            key=order.key,
            attempt=order.attempt,
            step=index,
            incarnation=self._incarnation,
        )
        given = {
            **self._given,
            "kubernetes": kubernetes,
            "name": job_name(marks),
            "labels": marks,
            "env": dict(order.env),
            "job_name": order.job_name,
            "step_id": step.id,
            "cancelable": step.cancelable,
            "grace_seconds": order.grace_seconds,
        }
        return step._replace(argv=_PROGRAM, stdin=json.dumps(given))

    def remove(self, keys: Collection[AttemptKey]) -> Mapping[AttemptKey, list[str]]:
        """Delete what attempts have left: what still runs, or may; nothing of an attempt proves that nothing of it does. Raises ApiError."""
        by_token, found = {str(key.token): key for key in keys}, defaultdict[AttemptKey, list[str]](list)
        tokens = list(by_token)
        for first in range(0, len(tokens), _TOKENS):
            wanted = selector(owner=self._access.owner, token=tokens[first : first + _TOKENS])
            for left in remove_jobs(self._api, self._access.namespaces, wanted):
                found[by_token[left.token]].append(left.text)
        return found

    def end_earlier(self, incarnations: Iterable[str], *, stopped: Callable[[], bool]) -> set[str]:
        """Delete what earlier incarnations of this executor have left. Those of which something still runs after the margin, or a minute, or when
        this process is `stopped`: no end of them may be attested. Raises TobanError UNAVAILABLE."""
        left = {one: [""] for one in incarnations}
        until = boottime() + min(self._margin, _START_SECONDS)
        while left:
            try:
                found = {one: self._remove_of(one) for one in left}
            except ApiError as error:
                raise TobanError(ErrorCode.UNAVAILABLE, f"{VARIABLE}API: {error}") from None
            left = {one: what for one, what in found.items() if what}
            if left and (boottime() > until or stopped()):
                break
            if left:
                pause(_LOOK_SECONDS)
        for one, what in left.items():
            _log.warning(
                "pods of an earlier incarnation are not known to have ended; their lease ends by itself",
                incarnation=one,
                left=what,
                remedy="when the node of a pod is down for good, delete the pod: kubectl delete pod --force",
            )
        return set(left)

    def _remove_of(self, incarnation: str) -> list[str]:
        wanted = selector(owner=self._access.owner, incarnation=incarnation)
        return [one.text for one in remove_jobs(self._api, self._access.namespaces, wanted)]

    def _check(self) -> None:
        """The API responds and permits to look at Jobs and pods: without that no end could be proved."""
        try:
            for namespace in self._access.namespaces:
                for kind in ("jobs", "pods"):
                    self._api.listed(kind, namespace, selector(incarnation=self._incarnation))
        except ApiError as error:
            code = ErrorCode.UNAVAILABLE if error.is_transient else ErrorCode.CONFIG_INVALID
            raise TobanError(code, f"{VARIABLE}API: {error}") from None
