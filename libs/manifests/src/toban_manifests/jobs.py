"""`kind: Job`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, WithJsonSchema, WrapValidator
from pydantic_core import PydanticCustomError

from toban_domain.dispatches import EXTERNAL
from toban_domain.job import (
    DEFAULT_GRACE_SECONDS,
    DEFAULT_LEASE_LOSS_GRACE_SECONDS,
    DEFAULT_LOG_LINES_PER_SECOND,
    DEFAULT_LOG_MB,
    DEFAULT_LOST_AFTER_SECONDS,
    DEFAULT_MAX_LOST,
    CancelSpec,
    JobSpec,
    LogSpec,
    SelectorSpec,
    guarded_type,
)
from toban_domain.notify import MAX_RULES
from toban_domain.payload import kind_of
from toban_domain.secret import MAX_SECRETS
from toban_manifests.concurrency import Concurrency, payload_problems
from toban_manifests.notify import Notify, check_notify, missing_problems
from toban_manifests.retries import Retry
from toban_manifests.secrets import (
    Secret,
    check_secrets,
    header_problems,
    unread_problems,
    variable_problems,
    without_secret_headers,
)
from toban_manifests.section import IfMissing, Reading, Section, key, part, problem, raise_problems
from toban_manifests.steps import MAX_STEPS, STEPS_HINT, Step, check_steps
from toban_manifests.templates import job_problems as template_problems
from toban_manifests.values import DAY, Env, Folder, Labels, ManifestModel, Payload, check_json

_MAX_NAMES = 100
# What only concerns steps on executors.
_OF_EXECUTORS = {"allow_shell", "env", "isolation", "on_lease_loss", "secrets", "selector", "working_dir"}
_MAX_NAME = 128


class Cancel(Section):
    """How a run is stopped."""

    MEANT = {"grace": "grace_seconds"}

    supported: bool = key(True, "whether `run cancel` is allowed", False)
    mode: Literal["kill", "cooperative"] = key(
        "kill",
        "`kill`: SIGTERM at once; `cooperative`: the job is told by its socket ([jobs.md](jobs.md)), SIGTERM after the grace. No step follows",
        "cooperative",
    )
    grace_seconds: float = key(
        DEFAULT_GRACE_SECONDS,
        "SIGTERM to SIGKILL; of a `cooperative` cancel also from its request to SIGTERM",
        2.5,
        type_name="seconds",
        ge=0,
        le=3600.0,
    )


class Selector(Section):
    """Which executors."""

    LATER = ("slots",)

    labels: Labels = key({}, "labels that an executor must have", {"zone": "a"})


def _read_redact(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise problem(f"must be a list, is {kind_of(value)}", "write [NAME]: variables or keys of the payload")
    raise_problems(_redact_problems(value))
    return tuple(dict.fromkeys(value))


def _redact_problems(names: list[Any]) -> Iterator[PydanticCustomError]:
    """Too many, and the first that is none."""
    if len(names) > _MAX_NAMES:
        yield problem(f"has {len(names)} names", f"use at most {_MAX_NAMES}")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or "\0" in name:
            hint = f"write the name of a variable or of a key of the payload, at most {_MAX_NAME} characters"
            yield problem("is not a name", hint, below=f"[{index}]")
            return


class Logs(Section):
    """What is kept of the output."""

    MEANT = {"max_bytes": "max_mb", "max_lines": "max_lines_per_second", "secrets": "redact", "mask": "redact"}

    max_mb: int = key(
        DEFAULT_LOG_MB,
        "MiB of one attempt; what comes after is left out but for the last lines; 0 = no limit",
        100,
        ge=0,
        le=1 << 20,
    )
    max_lines_per_second: int = key(
        DEFAULT_LOG_LINES_PER_SECOND,
        "lines over this rate (kept up for ten seconds) are left out, and counted in the log; 0 = no limit",
        500,
        ge=0,
        le=10_000_000,
    )
    redact: Annotated[
        tuple[str, ...],
        PlainValidator(_read_redact),
        WithJsonSchema(
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": _MAX_NAME},
                "maxItems": _MAX_NAMES,
            }
        ),
    ] = key(
        (),
        "variables of `env` and top-level keys of the payload whose values are replaced by `***` in the output, also as base64 "
        "or URL-encoded, and for everyone who reads the job, its runs, schedules and triggers",
        ["API_KEY"],
        type_name="list of names",
    )


def _read_schema(value: Any) -> dict[str, Any]:
    """The JSON Schema as it stands: the server compiles it."""
    if not isinstance(value, Mapping):
        raise problem(
            f"must be a mapping, is {kind_of(value)}", "write a JSON Schema (2020-12), such as {type: object}"
        )
    return check_json(value)


class Job(Section):
    """The spec of a job."""

    MEANT = {
        "command": "steps",
        "argv": "steps",
        "timeout": "timeout_seconds",
        "payload": "default_payload",
        "environment": "env",
        "cwd": "working_dir",
        "retries": "retry",
        "max_retries": "retry",
        "queue": "selector",
        "shell": "allow_shell",
        "log_limits": "logs",
        "lease_loss_grace": "lease_loss_grace_seconds",
        "log": "logs",
    }
    LATER = (
        "scope",
        "schedule",
    )

    steps: Annotated[
        list[Step],
        WrapValidator(check_steps),
        IfMissing(STEPS_HINT),
    ] = key(
        ...,
        "commands, one after the other; the first that fails ends the attempt",
        [{"argv": ["tar", "-c", "/srv"]}],
        type_name="list of steps",
        schema={"minItems": 1, "maxItems": MAX_STEPS},
    )
    enabled: bool = key(True, "a disabled job gets no new runs", False)
    payload_schema: Annotated[
        dict[str, Any] | None, PlainValidator(_read_schema), WithJsonSchema({"type": "object"})
    ] = key(
        None,
        "JSON Schema (2020-12) of the payload; a run whose payload does not fit is refused. `$ref` names a part of the same "
        "schema (`#/$defs/…`); patterns match in linear time, so without look-around and back-references",
        {"type": "object", "required": ["name"]},
        type_name="JSON Schema",
        unset="none",
    )
    result_schema: Annotated[
        dict[str, Any] | None, PlainValidator(_read_schema), WithJsonSchema({"type": "object"})
    ] = key(
        None,
        "JSON Schema (2020-12) of the output ([jobs.md](jobs.md)); a run that succeeds without one that fits is FAILED(result_invalid)",
        {"type": "object", "required": ["rows"]},
        type_name="JSON Schema",
        unset="none; any output is kept",
    )
    default_payload: Payload = key(
        {},
        "parameters, each overridden by the payload of a schedule or of `run start`; 32 KiB in all",
        {"name": "world"},
    )
    env: Env = key(
        {},
        "variables of the command; names beginning with `TOBAN_` are Toban's. Values may have [templates](jobs.md#templates)",
        {"LANG": "C.UTF-8"},
    )
    secrets: Annotated[list[Secret], WrapValidator(check_secrets)] = key(
        [],
        "values of `toban secret set` that the job finds in files ([secrets.md](secrets.md))",
        [{"name": "db-password"}],
        type_name="list of secrets",
        schema={"maxItems": MAX_SECRETS},
    )
    working_dir: Folder = key(
        "",
        "folder of the command. A relative one counts from the folder of the YAML file: `toban apply` makes it absolute; "
        "it must exist on the executor",
        ".",
        type_name="folder",
        unset="a folder of the executor",
    )
    timeout_seconds: int = key(
        0,
        "of one attempt, all steps; 0 = none; then SIGTERM, `grace_seconds`, SIGKILL to the whole process tree, TIMED_OUT",
        600,
        ge=0,
        le=366 * DAY,
    )
    retry: Retry = part(Retry, "how often a run is tried again")
    cancel: Cancel = part(Cancel, "how a run is stopped")
    repeatable: bool = key(
        True,
        "false: once a run with the same `dedupe_keys` has SUCCEEDED, no other is started; needs `concurrency.dedupe_keys`",
        False,
    )
    schedulable: bool = key(True, "false: schedules and triggers of the job are refused", False)
    concurrency: Concurrency = part(Concurrency, "runs at the same time ([limits.md](limits.md))")
    priority: int = key(0, "−1000 … 1000; higher goes first", 10, ge=-1000, le=1000)
    selector: Selector = part(Selector, "which executors")
    isolation: Literal["any", "isolated"] = key(
        "any",
        "`isolated`: only on executors whose jobs have a uid, namespaces and limits of their own (`toban executor list`, CLASS)",
        "isolated",
    )
    logs: Logs = part(Logs, "what is kept of the output ([logs.md](logs.md))")
    on_lease_loss: Literal["freeze", "kill", "continue"] | None = key(
        None,
        "what happens to a live run whose executor loses its lease ([fencing.md](fencing.md) 3.7): `freeze` stops its processes until "
        "the lease is renewed, `kill` ends them, `continue` lets them run on (needs `idempotent: true`)",
        "kill",
        unset="the version's, now freeze",
    )
    lease_loss_grace_seconds: float = key(
        DEFAULT_LEASE_LOSS_GRACE_SECONDS,
        "with `on_lease_loss: kill`: SIGTERM to SIGKILL when the lease ends, at most half of the lease",
        1.5,
        type_name="seconds",
        ge=0,
        le=300.0,
    )
    idempotent: bool = key(
        False,
        "states that two executions of a run at the same time do no harm; `on_lease_loss: continue` needs it",
        True,
    )
    lost_after_seconds: int = key(
        DEFAULT_LOST_AFTER_SECONDS,
        "with `on_lease_loss: continue`: how long a run whose executor was fenced waits for its report, before it goes on elsewhere",
        600,
        type_name="seconds",
        ge=1,
        le=366 * DAY,
    )
    max_lost: int = key(
        DEFAULT_MAX_LOST,
        "how often a run goes on elsewhere after its executor was lost; then EXPIRED",
        0,
        ge=0,
        le=1000,
    )
    max_wait_seconds: int = key(
        0, "how long a run may wait for its start; then EXPIRED; 0 = no limit", 3600, ge=0, le=366 * DAY
    )
    skip_late_after_seconds: int | None = key(
        None,
        "a run that has not started that long after its time is SKIPPED; 0 = never",
        60,
        unset="the setting `skip_late_runs_after_seconds`",
        ge=0,
        le=366 * DAY,
    )
    notify: Annotated[list[Notify], WrapValidator(check_notify)] = key(
        [],
        "webhooks that are sent something about runs of the job ([webhooks.md](webhooks.md#notifications-of-a-job))",
        [{"webhook": "pager"}],
        type_name="list of rules",
        schema={"maxItems": MAX_RULES},
    )
    expect_success_within_seconds: int = key(
        0,
        "a dead-man's switch: when no run has SUCCEEDED for that long, `notify` sends `missing`, once until one has",
        93600,
        unset="none",
        ge=1,
        le=366 * DAY,
    )
    allow_shell: bool = key(
        False, "whether argv may be a shell, or an interpreter with its program as an argument (`python -c`)", True
    )

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Iterator[PydanticCustomError]:
        """What belongs to another `on_lease_loss`, and `continue` for a job that may not run twice."""
        if given.get("on_lease_loss") == "continue" and given.get("idempotent") is not True:
            yield problem(
                "continue needs idempotent: true; a run may then be executed twice at the same time",
                "add idempotent: true if that does no harm, else use freeze or kill",
                below=".on_lease_loss",
            )
        if given.get("repeatable") is False and not _has_keys(given.get("concurrency")):
            yield problem(
                "false needs keys by which runs are the same",
                "add concurrency: {dedupe_keys: [KEY]} with top-level keys of the payload",
                below=".repeatable",
            )
        if "lost_after_seconds" in given and given.get("on_lease_loss") != "continue":
            yield problem(
                "needs on_lease_loss: continue; other runs go on as soon as their executor is fenced",
                "add on_lease_loss: continue, or take it out",
                below=".lost_after_seconds",
            )
        if "lease_loss_grace_seconds" in given and given.get("on_lease_loss") != "kill":
            yield problem(
                "needs on_lease_loss: kill; a frozen job gets no signal that it could handle",
                "add on_lease_loss: kill, or take it out",
                below=".lease_loss_grace_seconds",
            )

    @classmethod
    def check_after(cls, given: dict[str, Any], wrong: set[str], reading: Reading) -> Iterator[PydanticCustomError]:  # noqa: ARG003
        """Keys of `concurrency` that name what the payload never has, a policy that the rest of the job does not allow, a variable that is set
        twice, secrets that no step can read, and keys about executors in a job that needs none."""
        yield from template_problems(given if "steps" in wrong else without_secret_headers(given), wrong)
        if not wrong & {"env", "secrets"}:
            yield from variable_problems(given)
        if not wrong & {"steps", "secrets"}:
            yield from unread_problems(given)
            yield from header_problems(given)
        if "steps" not in wrong and all(step.get("type") == EXTERNAL for step in given["steps"]):
            for name in sorted(_OF_EXECUTORS & given.keys()):
                hint = "take it out, or add a step that runs on an executor"
                yield problem("has no effect: external workers do all steps of this job", hint, below=f".{name}")
        if not wrong & {"notify", "expect_success_within_seconds"}:
            yield from missing_problems(given)
        if not wrong & {"concurrency", "payload_schema", "default_payload", "cancel"}:
            yield from payload_problems(given)


def _has_keys(concurrency: Any) -> bool:
    return isinstance(concurrency, Mapping) and bool(concurrency.get("dedupe_keys"))


class JobManifest(ManifestModel):
    """What to run, how long, how often again, and where."""

    EXAMPLE = """\
apiVersion: toban/v1
kind: Job
metadata: {name: disk}
spec:
  steps:
    - argv: [df, -h, /]
"""

    kind: Literal["Job"]
    spec: Job

    def to_spec(self) -> JobSpec:
        """As the domain has it."""
        spec = self.spec
        return JobSpec(
            **vars(self.metadata),
            **vars(spec)
            | {
                "steps": tuple(step.to_spec(index) for index, step in enumerate(spec.steps)),
                "retry": spec.retry.to_spec(),
                "cancel": CancelSpec(**vars(spec.cancel)),
                "concurrency": replace(spec.concurrency.to_spec(), once=not spec.repeatable),
                "selector": SelectorSpec(
                    dict(spec.selector.labels), steps=guarded_type(step.type for step in spec.steps)
                ),
                "logs": LogSpec(**vars(spec.logs)),
                "on_lease_loss": spec.on_lease_loss or "",
                "secrets": tuple(one.to_spec() for one in spec.secrets),
                "notify": tuple(one.to_spec() for one in spec.notify),
            },
        )
