"""JobControl.RerunRun and NoteRun: a finished run is repeated, as it was or with changes; people remark something about a run."""

from __future__ import annotations

from dataclasses import dataclass

from toban_coordinator.app.runs.run_queries import run_not_found
from toban_coordinator.app.runs.start_runs import Rerun, RunRequest, StartedRun, StartRuns
from toban_coordinator.decide.runs.step_states import failed_step
from toban_coordinator.store.cluster import audit
from toban_coordinator.store.runs import reruns
from toban_coordinator.store.runs.reruns import Source
from toban_domain.access import MAX_REASON
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.payload import canonical_json, merge_payload, parse_payload
from toban_domain.redacted import unmasked
from toban_domain.run import TERMINAL, RunState
from toban_observability.masking import mask_text
from toban_store.pool import Pool
from toban_store.tx import autocommit

MAX_NOTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunRequest:
    """A run to repeat. `payload_json` is merged over its payload, or with `replace_payload` over the default payload of its job. A mask in it
    keeps the value of the run's payload.

    `priority` 0 and `scope` "" are those of the run; `idempotency_key` "" = none. Without `raises_priority` a priority of the run above 0 becomes
    that of its job.
    """

    run_id: int
    payload_json: str = ""
    replace_payload: bool = False
    latest_definition: bool = False
    priority: int = 0
    scope: str = ""
    scope_id: str = ""
    idempotency_key: str = ""
    reason: str = ""
    from_failed_step: bool = False
    raises_priority: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRepeats:
    """Repeats runs, and keeps remarks about them."""

    pool: Pool
    start: StartRuns

    async def rerun(self, wanted: RerunRequest, actor: str, *, noted: str = "run.rerun") -> StartedRun:
        """A new run, due now, that policies and limits treat as any other. `noted` is its action in the audit; "" = the caller writes one.

        Raises RUN_NOT_FOUND, RESOURCE_INVALID_STATE for a run that has not ended, or has no failed step to begin with, INVALID_ARGUMENT for
        one of both `from_failed_step` and `latest_definition`, and what StartRuns raises.
        """
        if wanted.from_failed_step and wanted.latest_definition:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT,
                "from_failed_step and latest_definition exclude each other: the steps of another definition may be others; leave out one of them",
            )
        async with autocommit(self.pool) as t:
            source = await reruns.source(t, wanted.run_id)
        if source is None:
            raise run_not_found(wanted.run_id)
        if source.state not in TERMINAL:
            raise TobanError(
                ErrorCode.RESOURCE_INVALID_STATE,
                f"run {source.id} is {source.state.value}: only a finished run is repeated; wait for its end, or start another: "
                f"toban run start {source.job}",
                detail={"state": source.state.value},
            )
        step, step_id = await self._failed_step(source) if wanted.from_failed_step else (0, "")
        request = _request(wanted, source, first_step=step, step_id=step_id)
        # A run that begins with a later step has a row of the audit of its own.
        noted = "" if step else noted
        [started] = await self.start.start([request], actor, reason=wanted.reason, noted=noted)
        return started

    async def _failed_step(self, source: Source) -> tuple[int, str]:
        async with autocommit(self.pool) as t:
            ended_at, ids = await reruns.ended_at(t, source.id)
        step = failed_step(source.state, ended_at, len(ids))
        if step is not None:
            return step, ids[step]
        if source.state is RunState.SUCCEEDED:
            why = "it has SUCCEEDED"
        elif len(ids) < 2:
            why = "its job has one step"
        else:
            why = f"it is {source.state.value} and did not get beyond its first step"
        raise TobanError(
            ErrorCode.RESOURCE_INVALID_STATE,
            f"run {source.id} has no failed step after others that have succeeded: {why}; repeat the whole run",
            detail={"state": source.state.value},
        )

    async def note(self, run_id: int, text: str, *, actor: str) -> None:
        """Keeps a remark. Raises RUN_NOT_FOUND, INVALID_ARGUMENT for a text that is empty or too long, RESOURCE_INVALID_STATE when the run
        has MAX_NOTES already."""
        text = mask_text(text.replace("\0", "�").strip())
        if not 0 < len(text) <= MAX_REASON:
            raise TobanError(
                ErrorCode.INVALID_ARGUMENT, f"the note has {len(text)} characters; write 1 to {MAX_REASON} of them"
            )
        async with autocommit(self.pool) as t:
            kept = await reruns.remark(t, run_id, text, actor=actor, most=MAX_NOTES)
        if kept is None:
            raise run_not_found(run_id)
        if not kept:
            message = f"run {run_id} has {MAX_NOTES} notes already, the most that a run may have"
            raise TobanError(ErrorCode.RESOURCE_INVALID_STATE, message)


def _request(wanted: RerunRequest, source: Source, *, first_step: int, step_id: str) -> RunRequest:
    stored, hidden = parse_payload(source.payload), source.redact
    given = parse_payload(wanted.payload_json)
    if hidden:
        # The caller has seen masks, and keeps the values behind them.
        given = unmasked(given, stored, hidden, hidden, "payload")
    payload = given if wanted.replace_payload else merge_payload(stored, given)
    own_scope = not wanted.scope
    kept_priority = source.priority if wanted.raises_priority else min(source.priority, 0)
    return RunRequest(
        job=source.job,
        payload_json=canonical_json(payload),
        priority=wanted.priority or kept_priority,
        idempotency_key=wanted.idempotency_key,
        scope=source.scope if own_scope else wanted.scope,
        scope_id=source.scope_id if own_scope else wanted.scope_id,
        rerun=Rerun(
            run_id=source.id,
            definition_id=source.definition_id,
            version=None if wanted.latest_definition else source.definition_version,
            reason=audit.clean_reason(wanted.reason),
            first_step=first_step,
            step_id=step_id,
        ),
    )
