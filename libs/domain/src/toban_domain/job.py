"""Job definitions as applied: steps, limits, retries and placement. Made by `toban_manifests`, stored as canonical JSON.

`to_json` omits default values, so that a release with more fields does not change the hash of stored definitions. `from_json`
ignores unknown keys, which a newer release may have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toban_domain.concurrency import ConcurrencySpec
from toban_domain.notify import NotifyRule
from toban_domain.retry import ExponentialBackoff, RetrySpec
from toban_domain.secret import SecretRef
from toban_domain.template import has_template, step_texts

__all__ = [
    "CancelSpec",
    "ConcurrencySpec",
    "ExponentialBackoff",
    "JobSpec",
    "LogSpec",
    "RetrySpec",
    "SelectorSpec",
    "StepSpec",
    "compact",
    "guarded_type",
]

STEPS_LABEL = "toban.dev/steps"
"""The label of executors with a container engine, or with the rights to start Jobs in Kubernetes; its value is the type of step."""
GUARDED_STEPS = ("container", "kubernetes")
"""Types of steps that run on such executors alone. Beside them these run http steps only: another job could use what gives the rights."""

ANY_ISOLATION = "any"
"""The isolation of a job that runs on executors of each class."""
ISOLATED, SHARED = "isolated", "shared"
"""The classes of executors: jobs have a uid, namespaces and limits of their own, or run as the executor's user."""

# Applies when a lease ends without confirmation and the definition sets no on_lease_loss.
LEASE_LOSS_ACTION = "freeze"
DEFAULT_GRACE_SECONDS = 10.0
DEFAULT_LEASE_LOSS_GRACE_SECONDS = 2.0
DEFAULT_MAX_LOST = 3
DEFAULT_LOST_AFTER_SECONDS = 3600
DEFAULT_LOG_MB = 1024
DEFAULT_LOG_LINES_PER_SECOND = 10_000


def compact(spec: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`spec` without the keys whose value is the default."""
    return {key: value for key, value in spec.items() if key not in defaults or value != defaults[key]}


# Keys that steps of all types have and may leave out, with their defaults: the same in the manifest, in JSON and in StepSpec.
_OF_ALL_STEPS: Mapping[str, Any] = {"name": "", "timeout_seconds": 0, "cancelable": True, "heartbeat_seconds": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """One command of a job. Steps run in sequence; the first failure ends the attempt. `timeout_seconds` 0 = only the job's timeout.

    `heartbeat_seconds`: how long it may be silent on its socket, 0 = for ever. A step that is not `cancelable` ends before a cancel takes effect.
    `body` is JSON: the keys that the type has besides, as in the manifest and without defaults. The manifest's model checks them, and what runs
    the type reads them; nothing between needs to know one.
    """

    id: str
    type: str = "command"
    name: str = ""
    timeout_seconds: int = 0
    cancelable: bool = True
    heartbeat_seconds: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        common = {key: getattr(self, key) for key in _OF_ALL_STEPS}
        return {"id": self.id, "type": self.type, **compact(common, _OF_ALL_STEPS), **self.body}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepSpec:
        """The inverse of to_json."""
        common = {"id": data["id"], "type": "command", **_OF_ALL_STEPS}
        body = {key: item for key, item in data.items() if key not in common}
        return cls(**{key: type(default)(data.get(key, default)) for key, default in common.items()}, body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSpec:
    """How a run is cancelled. `cooperative`: cancellation request, SIGTERM after `grace_seconds`; `kill`: SIGTERM, SIGKILL after the grace."""

    supported: bool = True
    mode: str = "kill"
    grace_seconds: float = DEFAULT_GRACE_SECONDS

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        full = {"supported": self.supported, "mode": self.mode, "grace_seconds": self.grace_seconds}
        return compact(full, {"supported": True, "mode": "kill", "grace_seconds": DEFAULT_GRACE_SECONDS})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CancelSpec:
        """The inverse of to_json."""
        return cls(
            supported=bool(data.get("supported", True)),
            mode=data.get("mode", "kill"),
            grace_seconds=float(data.get("grace_seconds", DEFAULT_GRACE_SECONDS)),
        )


def guarded_type(types: Iterable[str]) -> str:
    """The one of GUARDED_STEPS among the types of a job's steps; manifests with two are refused. Empty = none."""
    return next((kind for kind in types if kind in GUARDED_STEPS), "")


@dataclass(frozen=True, slots=True)
class SelectorSpec:
    """Which executors may run the job: those that have all of these labels. `steps` is the one of GUARDED_STEPS that it has, or empty:
    executors for such steps run jobs that have them, and no others. `job_labels` and `isolation` are those of the job, which sets them."""

    labels: Mapping[str, str] = field(default_factory=dict)
    steps: str = ""
    job_labels: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    isolation: str = field(default=ANY_ISOLATION, repr=False, compare=False)

    @property
    def needed(self) -> Mapping[str, str]:
        """All labels that an executor must have."""
        return {**self.labels, STEPS_LABEL: self.steps} if self.steps else self.labels

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether an executor with these labels may run the job."""
        offered = labels.get(STEPS_LABEL, "")
        if self.steps != (offered if offered in GUARDED_STEPS else ""):
            return False
        return all(labels.get(key) == value for key, value in self.labels.items())

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        return {"labels": dict(self.labels)} if self.labels else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """Limits of an attempt's output: total MiB, and lines per second (0 = no limit). The values of the environment variables and
    top-level payload keys in `redact` are masked."""

    max_mb: int = DEFAULT_LOG_MB
    max_lines_per_second: int = DEFAULT_LOG_LINES_PER_SECOND
    redact: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        full = {"max_mb": self.max_mb, "max_lines_per_second": self.max_lines_per_second, "redact": list(self.redact)}
        return compact(full, _LOG_DEFAULTS)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogSpec:
        """The inverse of to_json."""
        known = {**_LOG_DEFAULTS, **data}
        return cls(
            max_mb=int(known["max_mb"]),
            max_lines_per_second=int(known["max_lines_per_second"]),
            redact=tuple(known["redact"]),
        )


_LOG_DEFAULTS: Mapping[str, Any] = {
    "max_mb": DEFAULT_LOG_MB,
    "max_lines_per_second": DEFAULT_LOG_LINES_PER_SECOND,
    "redact": [],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job definition. `timeout_seconds` and `max_wait_seconds` 0 = no limit; `skip_late_after_seconds` None = as the setting."""

    name: str
    steps: tuple[StepSpec, ...]
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    payload_schema: Mapping[str, Any] | None = None
    result_schema: Mapping[str, Any] | None = None
    default_payload: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    timeout_seconds: int = 0
    retry: RetrySpec = field(default_factory=RetrySpec)
    cancel: CancelSpec = field(default_factory=CancelSpec)
    concurrency: ConcurrencySpec = field(default_factory=ConcurrencySpec)
    priority: int = 0
    selector: SelectorSpec = field(default_factory=SelectorSpec)
    isolation: str = ANY_ISOLATION
    logs: LogSpec = field(default_factory=LogSpec)
    on_lease_loss: str = ""
    lease_loss_grace_seconds: float = DEFAULT_LEASE_LOSS_GRACE_SECONDS
    max_lost: int = DEFAULT_MAX_LOST
    idempotent: bool = False
    lost_after_seconds: int = DEFAULT_LOST_AFTER_SECONDS
    max_wait_seconds: int = 0
    skip_late_after_seconds: int | None = None
    allow_shell: bool = False
    secrets: tuple[SecretRef, ...] = ()
    repeatable: bool = True
    schedulable: bool = True
    notify: tuple[NotifyRule, ...] = ()
    expect_success_within_seconds: int = 0
    # Whether env or a text of a step refers to values of the run: looked for once a definition, not once a run.
    templated: bool = field(init=False, default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        texts = [dict(self.env), *(step_texts(step.body) for step in self.steps)]
        object.__setattr__(self, "templated", has_template(texts))
        selector = replace(self.selector, job_labels=self.labels, isolation=self.isolation)
        object.__setattr__(self, "selector", selector)

    @property
    def lease_loss_action(self) -> str:
        """The action on a live run whose executor loses its lease: freeze, kill or continue."""
        return self.on_lease_loss or LEASE_LOSS_ACTION

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest and the name."""
        full: dict[str, Any] = {key: getattr(self, key) for key in _PLAIN}
        full |= {key: dict(getattr(self, key)) for key in ("labels", "default_payload", "env")}
        full |= {key: getattr(self, key).to_json() for key in ("retry", "cancel", "concurrency", "selector", "logs")}
        for key in ("payload_schema", "result_schema"):
            schema = getattr(self, key)
            full[key] = None if schema is None else dict(schema)
        full["secrets"] = [secret.to_json() for secret in self.secrets]
        full["notify"] = [rule.to_json() for rule in self.notify]
        kept = compact(full, _DEFAULTS)
        return {"name": self.name, **kept, "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobSpec:
        """The inverse of to_json."""
        return cls(
            name=data["name"],
            steps=tuple(StepSpec.from_json(step) for step in data["steps"]),
            labels=dict(data.get("labels", {})),
            payload_schema=data.get("payload_schema"),
            result_schema=data.get("result_schema"),
            default_payload=dict(data.get("default_payload", {})),
            env=dict(data.get("env", {})),
            retry=RetrySpec.from_json(data.get("retry", {})),
            cancel=CancelSpec.from_json(data.get("cancel", {})),
            concurrency=replace(
                ConcurrencySpec.from_json(data.get("concurrency", {})), once=data.get("repeatable") is False
            ),
            selector=SelectorSpec(
                dict(data.get("selector", {}).get("labels", {})),
                steps=guarded_type(step.get("type", "") for step in data["steps"]),
            ),
            logs=LogSpec.from_json(data.get("logs", {})),
            secrets=tuple(SecretRef.from_json(one) for one in data.get("secrets", ())),
            notify=tuple(NotifyRule.from_json(one) for one in data.get("notify", ())),
            **{key: data.get(key, default) for key, default in _PLAIN.items()},
        )


# Scalar keys of a job and their defaults: the same in the manifest, in JSON and in JobSpec.
_PLAIN: Mapping[str, Any] = {
    "description": "",
    "enabled": True,
    "working_dir": "",
    "timeout_seconds": 0,
    "priority": 0,
    "isolation": ANY_ISOLATION,
    "on_lease_loss": "",
    "lease_loss_grace_seconds": DEFAULT_LEASE_LOSS_GRACE_SECONDS,
    "max_lost": DEFAULT_MAX_LOST,
    "idempotent": False,
    "lost_after_seconds": DEFAULT_LOST_AFTER_SECONDS,
    "max_wait_seconds": 0,
    "skip_late_after_seconds": None,
    "allow_shell": False,
    "repeatable": True,
    "schedulable": True,
    "expect_success_within_seconds": 0,
}
_EMPTY: Mapping[str, Any] = {}
_DEFAULTS: Mapping[str, Any] = {
    **_PLAIN,
    "payload_schema": None,
    "result_schema": None,
    "secrets": [],
    "notify": [],
    **dict.fromkeys(("labels", "default_payload", "env", "retry", "cancel", "concurrency", "selector", "logs"), _EMPTY),
}
