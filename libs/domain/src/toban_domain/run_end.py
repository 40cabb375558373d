"""Ends of runs as events: which ends a trigger waits for, and what it may know of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from toban_domain.run import TERMINAL, RunState

RUN_END = "@run-end"
"""The type of the event that the end of a run is. No application can emit it: a type begins with a letter or digit."""
LATE = "LATE"
"""Beside the terminal states: SKIPPED with reason `late`."""
RUN_END_STATES = (*(state.value for state in RunState if state in TERMINAL), LATE)
DEFAULT_STATES = (RunState.SUCCEEDED.value,)
MAX_CHAIN_DEPTH = 20
"""Runs that one run may lead to, one by the end of another: the default of a setting."""
ROOTS = ("run", "result", "payload")
"""What filters and mappings of a trigger on the end of a run may refer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A run that has ended. `depth` counts the starts by ends of runs that led to it; `labels` are those of its job now."""

    id: int
    job: str
    state: str
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    scope: str = "system"
    scope_id: str = ""
    depth: int = 0
    # {run: {...}, result, payload}
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEndSpec:
    """Ends of runs of a job, or of all jobs with some labels, in some states."""

    job: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    states: tuple[str, ...] = DEFAULT_STATES

    @property
    def event_type(self) -> str:
        """The type of events under which its trigger is stored."""
        return type_of(self.job)

    def fits(self, run: EndedRun, *, target: str) -> bool:
        """Whether a run's end is one of them. By labels, runs of the job that would be started, `target`, are left out."""
        late = LATE in self.states and run.state == RunState.SKIPPED and run.reason == "late"
        if run.state not in self.states and not late:
            return False
        if self.job:
            return run.job == self.job
        return run.job != target and all(run.labels.get(key) == value for key, value in self.labels.items())

    def to_json(self) -> dict[str, Any]:
        """The canonical form, with the keys of the manifest."""
        which = {"job": self.job} if self.job else {"labels": dict(self.labels)}
        return {**which, "states": list(self.states)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunEndSpec:
        """The inverse of to_json; raises LookupError, TypeError, ValueError or AttributeError for what this version cannot read."""
        states = tuple(data["states"])
        if unknown := sorted({*states} - {*RUN_END_STATES}):
            raise ValueError(
                f"on_run_end.states has {', '.join(unknown)}; this version knows {', '.join(RUN_END_STATES)}"
            )
        return cls(job=data.get("job", ""), labels=dict(data.get("labels", {})), states=states)


def type_of(job: str) -> str:
    """The type of events under which triggers on ends of runs of a job are stored; "" = those by labels."""
    return f"{RUN_END}:{job}" if job else RUN_END


def run_facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a trigger may know of a run, from its columns; times are ISO 8601."""
    plain = {key: value.isoformat() if isinstance(value, datetime) else value for key, value in row.items()}
    result, payload = plain.pop("result"), plain.pop("payload")
    return {"run": plain, "result": result, "payload": payload}
