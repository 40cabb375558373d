"""Orders as protobuf messages: for the leader's own RPCs and for the answers to heartbeats."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.protobuf.message import EncodeError

from toban_coordinator.ports.orders import ORDER_INVALID, CancelOrder, StartOrder, StartResult, Target
from toban_domain.epoch import Term
from toban_domain.job import StepSpec
from toban_domain.outcome import AttemptKey
from toban_domain.secret import SecretFile
from toban_proto.v1 import executor_pb2 as pb
from toban_proto.v1.common_pb2 import LogTicket
from toban_transport.convert import key_to_pb, timestamp_to_pb

# gRPC takes messages of up to 4 MiB; requests are cut far below it, and one order alone may come near it.
REQUEST_BYTES = 1 << 20
ORDER_BYTES = 4_000_000

# Until release after 0.1: the body of a step is in fields of its own, which executors of 0.1 read, and in body_json only for a key beyond these:
# an order has not the room for both.
_OLD_FIELDS = (
    "argv",
    "callable",
    "python_path",
    "interpreter",
    "warm",
    "preload",
    "command",
    "args",
    "project",
    "settings",
)
_OLD_TREES = ("http", "container", "kubernetes")
# Of external steps, which no executor gets.
_OF_WORKERS = ("worker_type", "lock_ttl_seconds")


def header(epoch: int, serial: int, incarnation: str) -> pb.OrderHeader:
    """What carries authority in every order."""
    return pb.OrderHeader(leader_epoch=epoch, serial=serial, incarnation=incarnation)


def start_requests(
    target: Target,
    orders: Sequence[StartOrder],
    smallest_live_token: int,
    sign: Callable[..., LogTicket],
    secrets: Mapping[AttemptKey, Sequence[SecretFile]] | None = None,
) -> tuple[list[pb.StartJobRequest], list[StartResult]]:
    """Starts, each with its signed log ticket, as requests of at most REQUEST_BYTES that have no header yet, and a refusal for each order of
    which no message can be made. `sign` signs the tickets, as `TicketSigner.sign`. Raises TobanError when they cannot be signed."""
    requests: list[pb.StartJobRequest] = []
    refused: list[StartResult] = []
    size = REQUEST_BYTES
    for order in orders:
        try:
            message = _start(order, target.incarnation, sign)
            if order.secrets:
                # Raises LookupError rather than start a job without its secrets.
                message.secrets.extend(_secret(one) for one in (secrets or {})[order.key])
            length = message.ByteSize()
        except (TypeError, ValueError, OverflowError, EncodeError) as error:
            refused.append(StartResult(order.key, False, ORDER_INVALID, f"no message can be made of it: {error}"))
            continue
        if length > ORDER_BYTES:
            problem = f"it has {length} bytes, at most {ORDER_BYTES} fit into a message: shorten its steps or its env"
            refused.append(StartResult(order.key, False, ORDER_INVALID, problem))
            continue
        if size + length > REQUEST_BYTES:
            requests.append(pb.StartJobRequest(smallest_live_token=smallest_live_token))
            size = 0
        requests[-1].orders.append(message)
        size += length
    return requests, refused


def _start(order: StartOrder, incarnation: str, sign: Callable[..., LogTicket]) -> pb.StartOrder:
    key = order.key
    return pb.StartOrder(
        key=key_to_pb(key),
        attempt=order.attempt,
        job_name=order.job_name,
        definition_version=order.definition_version,
        steps=[_step(step) for step in order.steps],
        payload_json=order.payload_json,
        env=dict(order.env),
        timeout_seconds=order.timeout_seconds,
        grace_seconds=order.grace_seconds,
        on_lease_loss=order.on_lease_loss,
        lease_loss_grace_seconds=order.lease_loss_grace_seconds,
        slot=timestamp_to_pb(order.slot),
        log_ticket=sign(run_id=key.run_id, token=key.token, incarnation=incarnation, log_day=order.log_day),
        traceparent=order.span.context.header if order.span else "",
        working_dir=order.working_dir,
        allow_shell=order.allow_shell,
        logs=pb.LogRules(
            max_bytes=order.logs.max_mb << 20,
            max_lines_per_second=order.logs.max_lines_per_second,
            redact=order.logs.redact,
        ),
        checkpoint_json=order.checkpoint_json,
        first_step=order.first_step,
        result_expected=order.result_expected,
        may_wait=order.may_wait,
        priority=order.priority,
    )


def _secret(secret: SecretFile) -> pb.SecretFile:
    return pb.SecretFile(file=secret.file, file_env=secret.file_env, value=secret.value)


def _step(step: StepSpec) -> pb.Step:
    return pb.Step(
        id=step.id,
        name=step.name,
        type=step.type,
        timeout_seconds=step.timeout_seconds,
        cancelable=step.cancelable,
        heartbeat_seconds=step.heartbeat_seconds,
        body_json=json.dumps(step.body) if step.body.keys() - {*_OLD_FIELDS, *_OLD_TREES, *_OF_WORKERS} else "",
        **_old_fields(step.body),
    )


def _old_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: body[key] for key in _OLD_FIELDS if key in body}
    return plain | {f"{key}_json": json.dumps(body[key]) for key in _OLD_TREES if key in body}


def cancel_request(target: Target, term: Term, serial: int, orders: Sequence[CancelOrder]) -> pb.CancelJobRequest:
    """Cancels."""
    return pb.CancelJobRequest(
        header=header(term.epoch, serial, target.incarnation),
        orders=[
            pb.CancelOrder(
                key=key_to_pb(order.key),
                mode=order.mode,
                grace_seconds=order.grace_seconds,
                reason=order.reason,
                force=order.force,
            )
            for order in orders
        ],
    )


def revoke_request(target: Target, term: Term, serial: int, keys: Sequence[AttemptKey]) -> pb.RevokeRequest:
    """Revokes."""
    return pb.RevokeRequest(
        header=header(term.epoch, serial, target.incarnation), keys=[key_to_pb(key) for key in keys]
    )
