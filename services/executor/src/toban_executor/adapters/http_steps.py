"""The steps `type: http` of an order, made ready for their program: what it gets besides the request of the definition."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from toban_domain.epoch import Epoch
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.header_secrets import SECRET_HEADERS, join_headers
from toban_domain.http_access import parse_access
from toban_domain.version import VERSION
from toban_executor.adapters import http_step_runner
from toban_executor.decide.models import StartOrder, StepOrder
from toban_runtime.http_connection import check_ca_file

_PROGRAM = (sys.executable, "-I", "-m", http_step_runner.__name__)


class HttpSteps:
    """`allow` is SCHEDULER_HTTP_STEP_ALLOW, `ca_file` SCHEDULER_HTTP_STEP_CA_FILE. Raises TobanError CONFIG_INVALID for what cannot be read."""

    def __init__(self, *, allow: str, ca_file: Path | None) -> None:
        try:
            parse_access(allow)
        except ValueError as error:
            raise TobanError(ErrorCode.CONFIG_INVALID, f"{http_step_runner.VARIABLE}: {error}") from None
        try:
            if ca_file is not None:
                check_ca_file(ca_file)
        except ValueError as error:
            raise TobanError(ErrorCode.CONFIG_INVALID, f"SCHEDULER_HTTP_STEP_CA_FILE: {error}") from None
        self._settings = {"allow": allow, "ca_file": str(ca_file.absolute()) if ca_file else ""}

    def complete(self, order: StartOrder) -> StartOrder:
        """The order with programs for its http steps."""
        if not any(step.type == "http" for step in order.steps):
            return order
        return replace(order, steps=tuple(self._step(order, step) for step in order.steps))

    def _step(self, order: StartOrder, step: StepOrder) -> StepOrder:
        if step.type != "http":
            return step
        try:
            http = json.loads(step.stdin)
            given: dict[str, Any] = {
                "http": join_headers(http, {one.file: one.value for one in order.secrets}),
                "secret_headers": sorted(http.get(SECRET_HEADERS, {})),
                "headers": _headers(order, step),
                "cancelable": step.cancelable,
                **self._settings,
            }
        except (ValueError, LookupError, TypeError, AttributeError):
            # Refused as a step without a program.
            return step._replace(argv=(), stdin="")
        return step._replace(argv=_PROGRAM, stdin=json.dumps(given))


def _headers(order: StartOrder, step: StepOrder) -> dict[str, str]:
    """What every request says of its run. The key stays the same when a lost attempt is repeated, and is another one after a restored backup,
    which may give the number of a run again."""
    generation = Epoch.unpack(order.key.token).generation
    return {
        "User-Agent": f"toban/{VERSION}",
        "Idempotency-Key": f"toban-{generation}-{order.key.run_id}-{order.attempt}-{step.id}",
        "Toban-Fence": str(order.key.token),
        **({"traceparent": order.traceparent} if order.traceparent else {}),
    }
