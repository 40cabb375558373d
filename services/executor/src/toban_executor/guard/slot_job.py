"""The socket of a slot, what the attempt in it says there, and which lines of output belong to which of its steps."""

import json
import select
from collections.abc import Callable
from pathlib import Path

from toban_executor.decide.guard_types import JobNote, NotifyCancel, TellCheckpoint
from toban_executor.decide.models import AttemptEnd, StartOrder, StepEnd
from toban_executor.decide.slot_state import Attempt
from toban_executor.guard.clock import boottime, wall_ns
from toban_executor.guard.job_session import JobSession
from toban_executor.guard.job_socket import JobSocket
from toban_executor.guard.output_pipeline import OutputPipeline


class SlotJob:
    """`send` gets notes for the executor; `lease_left` is that of JobSession, `gid` that of JobSocket."""

    def __init__(
        self,
        *,
        path: Path,
        poll: select.poll,
        send: Callable[[JobNote], None],
        lease_left: Callable[[], float | None],
        gid: int = 0,
    ) -> None:
        self._socket = JobSocket(path=path, poll=poll, now=boottime, gid=gid)
        self._send = send
        self._lease_left = lease_left
        # Made for the first word of the attempt in the slot: most jobs say none.
        self._session: JobSession | None = None
        self._order: StartOrder | None = None
        self._output: OutputPipeline | None = None
        # Numbers of the first lines of the steps that were started.
        self._first_seqs: list[int] = []

    @property
    def path(self) -> str:
        """Where jobs find the socket; empty when there is none."""
        return self._socket.path

    @property
    def due(self) -> float:
        """When `spoke` is to be called at the latest, CLOCK_BOOTTIME."""
        return self._socket.due

    def owns(self, fd: int) -> bool:
        """Whether an event of this descriptor is for `ready`."""
        return self._socket.owns(fd)

    def ready(self, fd: int) -> None:
        """Accept, read or write."""
        session = self._opened()
        self._socket.ready(fd, session.serve if session else None)

    def begin(self, order: StartOrder, output: OutputPipeline) -> None:
        """An attempt comes into the slot."""
        self._first_seqs.clear()
        self._order, self._output = order, output
        output.read_marker = self._read_marker

    def _read_marker(self, line: bytes) -> None:
        if (session := self._opened()) is not None:
            session.read_marker(line)

    def _opened(self) -> JobSession | None:
        """What the attempt in the slot says and is answered; None without an attempt."""
        output = self._output
        if self._session is None and self._order is not None and output is not None:
            self._session = JobSession(
                order=self._order,
                socket=self._socket,
                send=self._send,
                redact=output.redact,
                redact_secrets=output.redact_secrets,
                now_ns=wall_ns,
                lease_left=self._lease_left,
            )
        return self._session

    def begin_step(self) -> None:
        """A step is about to be started."""
        assert self._output is not None
        self._first_seqs.append(self._output.numbering.last_seq + 1)

    @property
    def step_seq(self) -> int:
        """The number of the first line of the step that was started last."""
        return self._first_seqs[-1] if self._first_seqs else 0

    def note_steps(self, attempt: Attempt) -> None:
        """Tell the executor which step of several runs."""
        current = StepEnd(step=attempt.step, started_ns=int(attempt.step_started_wall * 1e9))
        text = json.dumps(self._with_lines((*attempt.step_ends, current)), separators=(",", ":"))
        self._send(JobNote(key=attempt.spawn.order.key, kind="steps", text=text))

    def spoke(self) -> bool:
        """Serve what waited for the rate; whether the job has shown since the last call that it is alive."""
        session = self._session
        if session is None:
            return False
        if boottime() >= self._socket.due:
            self._socket.resume(session.serve)
        spoke, session.spoke = session.spoke, False
        return spoke

    def notify_cancel(self, effect: NotifyCancel) -> None:
        """The run is cancelled."""
        if (session := self._opened()) is not None:
            session.cancel(effect.reason)

    def tell_checkpoint(self, effect: TellCheckpoint) -> None:
        """A checkpoint was stored, or was not."""
        if self._session is not None:
            self._session.checkpoint_stored(effect.number, effect.problem)

    def finish_step(self) -> None:
        """The tree is empty: what was sent before still counts."""
        if self._session is not None:
            self._session.finish()

    def finish(self, end: AttemptEnd) -> AttemptEnd:
        """The attempt is over: its end with what the job has set."""
        order, session = self._order, self._session
        if order is None:
            return end
        end = end._replace(step_ends=self._with_lines(end.step_ends), result_expected=order.result_expected)
        if session is not None:
            end = end._replace(result_json=session.result_json, log_ref=session.log_ref)
        # The output holds the values to redact.
        self._order = self._session = self._output = None
        return end

    def _with_lines(self, steps: tuple[StepEnd, ...]) -> tuple[StepEnd, ...]:
        """With the numbers of their first and last lines."""
        if not steps or self._output is None:
            return steps
        ends = [*(seq - 1 for seq in self._first_seqs[1:]), self._output.numbering.last_seq]
        return tuple(
            step._replace(seq_from=first, seq_to=last)
            for step, first, last in zip(steps, self._first_seqs, ends, strict=False)
        )
