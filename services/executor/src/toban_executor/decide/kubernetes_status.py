"""What the status of a Job and of its pods means for the step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from toban_executor.decide.kubernetes_job import CONTAINER

_HOPELESS = ("InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
"""Reasons of a container that waits, which time does not change."""
_TERMINAL = ("Succeeded", "Failed")
_SHOWN = 300
OOM = "OOMKilled"


class Pod(NamedTuple):
    """A pod. `exit_code` None: its container has not ended, or the cluster does not know how; `waits` is why it does not run yet."""

    name: str
    node: str = ""
    phase: str = ""
    started: bool = False
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    waits: str = ""
    deleted: bool = False

    @property
    def is_over(self) -> bool:
        """None of its containers runs, nor will one."""
        return self.phase in _TERMINAL


class End(NamedTuple):
    """The end of a step; `text` says what its exit code does not."""

    exit_code: int
    text: str = ""


def read_pod(pod: Mapping[str, Any]) -> Pod:
    """From the object of the API."""
    meta, status = pod["metadata"], pod.get("status", {})
    found: Mapping[str, Any] = next(
        (one for one in status.get("containerStatuses", ()) if one.get("name") == CONTAINER), {}
    )
    state = found.get("state", {})
    ended = state.get("terminated") or {}
    return Pod(
        name=meta["name"],
        node=pod.get("spec", {}).get("nodeName", ""),
        phase=status.get("phase", ""),
        started=bool(ended) or "running" in state,
        exit_code=ended.get("exitCode"),
        reason=ended.get("reason") or status.get("reason", ""),
        message=_short(ended.get("message") or status.get("message", "")),
        waits=_waits(status, state.get("waiting") or {}),
        deleted="deletionTimestamp" in meta,
    )


def _waits(status: Mapping[str, Any], waiting: Mapping[str, str]) -> str:
    if waiting.get("reason"):
        return _told(waiting["reason"], waiting.get("message", ""))
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _told(condition.get("reason", "Unschedulable"), condition.get("message", ""))
    return ""


def is_finished(job: Mapping[str, Any]) -> bool:
    """Whether the Job makes no pod any more."""
    return any(kind in ("Complete", "Failed") for kind, _, _ in _conditions(job))


def end_of(job: Mapping[str, Any] | None, pods: Collection[Pod], *, memory_mb: int = 0) -> End | None:
    """How the step has ended; None while it has not. `job` None: it was deleted. `memory_mb` is its limit, 0 = none."""
    failure = next((one for one in _conditions(job or {}) if one[0] in ("Failed", "FailureTarget")), None)
    if failure and failure[1] == "DeadlineExceeded":
        return End(1, "the Job reached its deadline (activeDeadlineSeconds), which was not extended in time")
    over = next((pod for pod in pods if pod.exit_code is not None), None) or next(
        (pod for pod in pods if pod.is_over), None
    )
    if over is not None:
        return _end_of_pod(over, memory_mb)
    if job is None:
        return End(1, "the Job was deleted, and not by this step")
    if failure and not pods:
        return End(1, f"the Job failed: {_told(failure[1], failure[2])}")
    return None


def _end_of_pod(pod: Pod, memory_mb: int) -> End:
    if pod.exit_code is None:
        return End(1, f"pod {pod.name} failed: {_told(pod.reason or 'no reason given', pod.message)}")
    if pod.reason == OOM:
        limit = f"limits.memory_mb = {memory_mb}" if memory_mb else "the memory of its node"
        return End(pod.exit_code or 137, f"the container was ended for its memory ({OOM}): it needed more than {limit}")
    if pod.exit_code and pod.deleted:
        return End(pod.exit_code, f"pod {pod.name} was deleted while it ran: by a drain, by preemption, or by hand")
    return End(pod.exit_code & 0xFF)


def cannot_start(pods: Collection[Pod], *, waited: float, limit: float) -> str:
    """Why the step is given up before its container runs; empty while it is not."""
    for pod in pods:
        if pod.waits.startswith(_HOPELESS):
            return f"pod {pod.name} cannot start: {pod.waits}"
    if waited < limit or any(pod.started for pod in pods):
        return ""
    why = next((f"pod {pod.name}: {pod.waits or pod.phase}" for pod in pods), "the Job has no pod; see its events")
    return f"no container ran within start_timeout_seconds = {limit:g}; {why}"


def _conditions(job: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Type, reason and message of those that hold."""
    return [
        (one["type"], one.get("reason", ""), one.get("message", ""))
        for one in job.get("status", {}).get("conditions") or ()
        if one.get("status") == "True"
    ]


def _told(reason: str, message: str) -> str:
    return f"{reason}: {_short(message)}" if message else reason


def _short(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]
