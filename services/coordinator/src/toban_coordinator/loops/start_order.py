"""Builds the order that starts an attempt from its definition."""

from __future__ import annotations

from datetime import datetime

from toban_coordinator.ports.orders import OrderStep, StartOrder
from toban_domain.job import JobSpec
from toban_domain.outcome import AttemptKey
from toban_observability.tracing import OpenSpan


def start_order(
    key: AttemptKey,
    spec: JobSpec,
    *,
    version: int,
    attempt: int,
    payload: str,
    slot: datetime | None,
    timeout_seconds: int,
    log_day: str,
    span: OpenSpan | None = None,
) -> StartOrder:
    """The order for one attempt of a run of `spec`, at that version of it. `span` is its way to the executor."""
    return StartOrder(
        key=key,
        attempt=attempt,
        job_name=spec.name,
        definition_version=version,
        steps=_steps(spec),
        payload_json=payload,
        env=spec.env,
        timeout_seconds=timeout_seconds,
        grace_seconds=spec.cancel.grace_seconds,
        on_lease_loss=spec.lease_loss_action,
        slot=slot,
        log_day=log_day,
        working_dir=spec.working_dir,
        allow_shell=spec.allow_shell,
        logs=spec.logs,
        span=span,
    )


def _steps(spec: JobSpec) -> tuple[OrderStep, ...]:
    return tuple(
        OrderStep(
            id=step.id,
            name=step.name,
            type=step.type,
            argv=step.argv,
            timeout_seconds=step.timeout_seconds,
            cancelable=step.cancelable,
            callable=step.callable,
            python_path=step.python_path,
        )
        for step in spec.steps
    )
