"""The supervised processes: each with its program and history; started, adopted, released, and checked for their end."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

from toban_runtime.clock import SystemClock
from toban_stack.errors import StackError
from toban_stack.processes import ProcessRecord, Program, boot_id
from toban_stack.stack_paths import StackPaths
from toban_stack.state_file import StateFile
from toban_stack.supervisor import children, report
from toban_stack.supervisor.children import Process
from toban_stack.supervisor.policy import Backoff, Exit, History, ended, started

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class _Service:
    """A program, its history, and its process while it runs."""

    def __init__(self, program: Program, history: History | None) -> None:
        self.program = program
        self.history = history
        self.process: Process | None = None


class Table:
    """Not thread-safe. `watch` registers a process and what to call at its end, `unwatch` removes it again."""

    def __init__(
        self,
        *,
        home: StackPaths,
        backoff: Backoff,
        clock: SystemClock,
        watch: Callable[[Process, Callable[[], None]], None],
        unwatch: Callable[[Process], None],
        log: Callable[[str], None],
    ) -> None:
        self._home = home
        self._backoff = backoff
        self._clock = clock
        self._watch = watch
        self._unwatch = unwatch
        self._log = log
        self._records = StateFile(path=home.state_file)
        self._previous = report.read(home.supervisor_report)
        self._services: dict[str, _Service] = {}

    def __len__(self) -> int:
        return len(self._services)

    def next_start(self) -> float | None:
        """The earliest moment at which a process is to be started again; None when all run."""
        times = [one.history.next_start for one in self._services.values() if one.history]
        return min((time for time in times if time is not None), default=None)

    def start_due(self) -> None:
        """Starts every process whose time has come."""
        now = self._clock.monotonic()
        for service in self._services.values():
            if service.history and service.history.next_start is not None and service.history.next_start <= now:
                self._start(service)
        self._publish()

    def supervise(self, program: Program) -> ProcessRecord:
        """Starts the program unless it runs, and adopts a running one of another parent. Raises StackError."""
        service = self._services.get(program.name)
        if service is None:
            service = self._services[program.name] = _Service(program, self._restored(program.name))
        service.program = program
        self._check(service)
        if service.process is None and not self._adopt(service):
            self._start(service)
        self._publish()
        if service.process is None:
            last = service.history.last_exit if service.history else None
            raise StackError(f"{program.name} could not be started: {last.detail if last else 'it ended at once'}")
        return service.process.record

    def release(self, names: Iterable[str]) -> None:
        """Never restarts these again. Their processes continue to run, and are reaped when they end."""
        for name in names:
            service = self._services.pop(name, None)
            if service is None:
                continue
            process, service.process = service.process, None
            if process is not None:
                self._watch(process, lambda process=process: self._reap(process))  # type: ignore[misc]
            self._log(f"{name} released: it is not restarted any more")
        self._publish()

    def _start(self, service: _Service) -> None:
        """A failure counts as an end, so that the next try comes after the backoff."""
        name, now = service.program.name, self._clock.monotonic()
        try:
            process = children.start(service.program, self._records.add)
        except (OSError, StackError) as error:
            history = service.history or History(since=now, next_start=now)
            self._has_ended(service, history, Exit(detail=str(error)))
            return
        service.history = started(service.history, now=now)
        self._attach(service, process)
        restarts = service.history.restarts
        self._log(f"{name} started, pid {process.record.pid}" + (f", restart {restarts}" if restarts else ""))

    def _adopt(self, service: _Service) -> bool:
        record = self._records.running(service.program.name)
        if record is None:
            return False
        try:
            process = Process(record)
        except ProcessLookupError:
            return False
        age = self._clock.boottime() - record.started / TICKS_A_SECOND
        since = self._clock.monotonic() - age
        service.history = replace(service.history or History(since=since), since=since, next_start=None)
        self._attach(service, process)
        self._log(f"{record.name} adopted, pid {record.pid}")
        return True

    def _restored(self, name: str) -> History | None:
        """The history under a supervisor that was killed; None at the first start since the machine's."""
        before, record = self._previous.get(name), self._records.get(name)
        if before is None or record is None or record.boot != boot_id():
            return None
        now = self._clock.monotonic()
        return History(since=now, next_start=now, restarts=before.restarts, last_exit=before.last_exit)

    def _attach(self, service: _Service, process: Process) -> None:
        service.process = process
        self._watch(process, lambda: self._check(service))

    def _check(self, service: _Service) -> None:
        """Notes the end of its process, if it has ended."""
        process, history = service.process, service.history
        if process is None or history is None or (cause := process.poll()) is None:
            return
        self._unwatch(process)
        service.process = None
        if cause.code:
            cause = replace(cause, detail=children.last_line(service.program.log))
        self._has_ended(service, history, cause)
        self._publish()

    def _reap(self, process: Process) -> None:
        if process.poll() is not None:
            self._unwatch(process)

    def _has_ended(self, service: _Service, history: History, cause: Exit) -> None:
        now = self._clock.monotonic()
        cause = replace(cause, at=self._clock.wall().isoformat(timespec="seconds"))
        service.history = history = ended(history, cause, now=now, backoff=self._backoff)
        wait, last = (history.next_start or now) - now, history.last_exit or cause
        detail = f" ({last.detail})" if last.detail else ""
        when = f"next start in {wait:g} s, failures in a row: {history.failures}" if wait else "restart now"
        self._log(f"{service.program.name} ended, {last}{detail}; {when}")

    def _publish(self) -> None:
        wall, now = self._clock.wall(), self._clock.monotonic()

        def at(moment: float | None) -> str:
            return "" if moment is None else (wall + timedelta(seconds=moment - now)).isoformat(timespec="seconds")

        services = {
            name: report.ServiceReport(
                restarts=one.history.restarts,
                failures=one.history.failures,
                next_start_at=at(one.history.next_start),
                last_exit=one.history.last_exit,
            )
            for name, one in self._services.items()
            if one.history is not None
        }
        try:
            report.write(self._home.supervisor_report, services)
        except OSError as error:
            self._log(f"the file for `make status` cannot be written: {error}")
