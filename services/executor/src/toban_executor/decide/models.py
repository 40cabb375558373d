"""Orders, ends of attempts and reports: the executor's own form of what travels on the wire."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from toban_domain.job import DEFAULT_LEASE_LOSS_GRACE_SECONDS
from toban_domain.outcome import AttemptKey, ErrorLine, Outcome
from toban_domain.secret import SecretFile


class StepOrder(NamedTuple):
    """One step of an attempt. `timeout_seconds` 0 = none of its own. Of the types python and django `argv` calls `callable`, or runs `command`.

    `heartbeat_seconds`: how long the job may be silent on its socket, 0 = for ever. Not `cancelable`: a cancel waits for the end of the step.
    `warm_argv` starts the zygote that the step forks from, and `warm_call` is what the fork does; without them the step starts `argv`.
    `stdin` is for a program of the executor itself (http, container, kubernetes), which gets no variable of the definition: it may hold secrets.
    """

    type: str
    argv: tuple[str, ...]
    timeout_seconds: int = 0
    callable: str = ""
    id: str = ""
    cancelable: bool = True
    heartbeat_seconds: int = 0
    warm_argv: tuple[str, ...] = ()
    warm_call: tuple[str, ...] = ()
    command: str = ""
    stdin: str = ""


class LogRules(NamedTuple):
    """What is kept of an attempt's output; 0 = no limit. Values of the variables and payload keys in `redact` are masked."""

    max_bytes: int = 0
    lines_per_second: int = 0
    redact: tuple[str, ...] = ()


NO_LOG_RULES = LogRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """An attempt to start. Times in seconds; `slot` is the schedule's time as ISO text, empty on demand; `ticket` is opaque."""

    key: AttemptKey
    attempt: int = 1
    job_name: str = ""
    steps: tuple[StepOrder, ...] = ()
    payload_json: str = "{}"
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: int = 0
    grace_seconds: float = 2.0
    slot: str = ""
    traceparent: str = ""
    working_dir: str = ""
    allow_shell: bool = False
    ticket: bytes = b""
    logs: LogRules = NO_LOG_RULES
    # "freeze" or "kill"; only "kill" uses the seconds between SIGTERM and SIGKILL.
    on_lease_loss: str = "kill"
    lease_loss_grace_seconds: float = DEFAULT_LEASE_LOSS_GRACE_SECONDS
    # JSON that an earlier attempt of the run has stored; empty = none.
    checkpoint_json: str = ""
    # Index of the step to begin with.
    first_step: int = 0
    # The definition has a schema for the output of the job.
    result_expected: bool = False
    # In memory only: neither the journal nor a log has them.
    secrets: tuple[SecretFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelOrder:
    """An attempt to end. `cooperative`: the job is told, SIGTERM after `grace_seconds`; `kill`: SIGTERM at once. SIGKILL comes `grace_seconds` after
    SIGTERM. Both wait for the end of a step that is not cancelable, unless `force` is set: an operator's kill."""

    key: AttemptKey
    mode: str = "kill"
    grace_seconds: float = 2.0
    reason: str = ""
    force: bool = False


class StepEnd(NamedTuple):
    """A step that was started. Unix nanoseconds; `finished_ns` 0 = it runs. Its lines of output have the numbers `seq_from` to `seq_to`."""

    step: int
    started_ns: int
    finished_ns: int = 0
    exit_code: int | None = None
    signal: int | None = None
    seq_from: int = 0
    seq_to: int = 0


class AttemptEnd(NamedTuple):
    """The end of an attempt, as its guard reports it. Times are Unix nanoseconds, 0 = not known.

    An empty `cause` means that it ended by itself, `pid` 0 that its last step has had no process. `redacted` values were masked
    in its output; `left_out` is what the limits cost: rate or budget → (lines, bytes). `result_json` and `log_ref` are what the job has set;
    `step_ends` are the steps of a job that has more than one, `error_lines` the last lines of a failed step.
    """

    key: AttemptKey
    pid: int = 0
    cause: str = ""
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    step: int = 0
    steps: int = 1
    started_ns: int = 0
    finished_ns: int = 0
    last_seq: int = 0
    last_line: str = ""
    redacted: int = 0
    left_out: Mapping[str, tuple[int, int]] = MappingProxyType({})
    result_json: str = ""
    log_ref: str = ""
    step_ends: tuple[StepEnd, ...] = ()
    result_expected: bool = False
    error_lines: tuple[ErrorLine, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether it ended neither well nor because it was told to."""
        return self.cause != "cancel" and (bool(self.cause) or self.exit_code != 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A start or an outcome to report to coordinators; `seq` numbers the reports of an attempt (1 start, 2 outcome)."""

    key: AttemptKey
    seq: int
    started_ns: int = 0
    outcome: Outcome | None = None
    pid: int = 0

    def __hash__(self) -> int:
        return hash((self.key, self.seq))
