"""What the tests of Django for its own backends need in place of these: a backend that leaves tasks READY, and one that waits for their ends."""

import unittest

from django.tasks import signals
from django.test.runner import DiscoverRunner

from toban.django import conf
from toban.django.tasks import TobanBackend, set_fields

SIGNALS = "the process of the run sends task_started and task_finished, so their lines are in the output of the run"
COMMIT = "TobanBackend enqueues when the transaction commits, by design"
SKIPPED = {
    "CustomBackendTestCase": "tests BaseTaskBackend with a backend of its own",
    "DummyBackendTestCase.test_refresh_result": "changes the list in memory that DummyBackend has",
    "DummyBackendTestCase.test_refresh_result_async": "changes the list in memory that DummyBackend has",
    "DummyBackendTestCase.test_clear": "clear() is of DummyBackend alone",
    "DummyBackendTestCase.test_check": "an empty QUEUES is a mistake here: each queue is a job",
    "DummyBackendTransactionTestCase": COMMIT,
    "ImmediateBackendTransactionTestCase": COMMIT,
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "the task is in another process, which fails as for other exceptions",
    "ImmediateBackendTestCase.test_cannot_get_result": "TobanBackend has results",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "TobanBackend has results",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "TobanBackend has run_after",
    "ImmediateBackendTestCase.test_enqueue_logs": SIGNALS,
    "ImmediateBackendTestCase.test_failed_logs": SIGNALS,
}


class _SuiteBackend(TobanBackend):
    kind = ""

    @property
    def jobs(self):
        """One set of jobs for all aliases, whatever queues a test names."""
        return {queue: f"suite-{self.kind}-{queue}" for queue in ("default", "queue_1")}


class ReadyBackend(_SuiteBackend):
    """No executor takes its runs; `results` is what DummyBackend has."""

    kind = "ready"

    def __init__(self, alias, params):
        super().__init__(alias, params)
        self.results = []

    def enqueue(self, task, args, kwargs):
        """Remember the result."""
        self.results.append(super().enqueue(task, args, kwargs))
        return self.results[-1]

    def clear(self):
        """Forget them."""
        self.results.clear()


class WaitingBackend(_SuiteBackend):
    """Its results have ended, as those of ImmediateBackend."""

    kind = "waiting"

    def enqueue(self, task, args, kwargs):
        """Wait, and log the failure as the process of the run has done."""
        result = super().enqueue(task, args, kwargs)
        client = conf.client()
        [run] = client.runs.list(job=self.jobs[task.queue_name], idempotency_key=result.id, ahead=True)
        client.runs.wait(run.id, timeout=60)
        set_fields(result, **{name: getattr(self.get_result(result.id), name) for name in ENDED})
        if result.errors:
            try:
                raise RuntimeError(result.errors[0].traceback)
            except RuntimeError:
                signals.task_finished.send(type(self), task_result=result)
        return result


ENDED = ("errors", "_return_value", "finished_at", "started_at", "last_attempted_at", "status", "worker_ids")


class Runner(DiscoverRunner):
    """Skips what is not for any backend."""

    def build_suite(self, *args, **kwargs):
        """The suite, with the reasons."""
        suite = super().build_suite(*args, **kwargs)
        for test in suite:
            case = type(test)
            name = test.id().rpartition(".")[2]
            reason = SKIPPED.get(case.__name__) or SKIPPED.get(f"{case.__name__}.{name}")
            if reason:
                setattr(case, name, unittest.skip(reason)(getattr(case, name)))
        return suite
