"""Jobs that speak on TOBAN_SOCKET, over a whole stack: output, checkpoints, cancellation and steps (docs/jobs.md)."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from toban_testing.admin_client import AdminClient

pytestmark = pytest.mark.e2e
SDK = Path(__file__).parents[2] / "libs/sdk/src"


def python(script: str, **fields: Any) -> dict[str, Any]:
    """A step that runs this program with the library of jobs."""
    return {"argv": [sys.executable, "-c", f"import toban, time\njob = toban.current_job()\n{script}"], **fields}


def start(admin: AdminClient, name: str, *steps: dict[str, Any], **spec: Any) -> int:
    body = {"steps": list(steps), "env": {"PYTHONPATH": str(SDK)}, "allow_shell": True, **spec}
    admin.apply({"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": name}, "spec": body})
    [run] = admin.start(name)
    return int(run)


@pytest.mark.seed(142)
def test_output_progress_and_a_checkpoint_for_the_next_attempt(admin: AdminClient) -> None:
    script = """
done = job.checkpoint() or 0
job.progress(done=done + 1, total=2, summary='working')
job.save_checkpoint(done + 1)
if done == 0: raise SystemExit(3)
job.output({'done': done + 1}); job.log_ref('s3://bucket/key')
"""
    schema = {"type": "object", "properties": {"done": {"const": 2}}, "required": ["done"]}
    run = start(admin, "keeps", python(script), retry={"max_retries": 1}, result_schema=schema)
    ended = admin.until_ended(run)
    assert (ended.state, ended.attempt, ended.log_ref) == ("SUCCEEDED", 2, "s3://bucket/key")
    assert json.loads(ended.result_json) == {"done": 2}
    progress = json.loads(ended.progress_json)
    assert (progress["percentage"], progress["steps"]) == (100, {"done": 2, "total": 2})


def test_output_that_does_not_fit_fails_the_run(admin: AdminClient) -> None:
    run = start(admin, "unfit", python("job.output(7)"), result_schema={"type": "object"})
    ended = admin.until_ended(run)
    assert (ended.state, ended.reason) == ("FAILED", "result_invalid")
    assert "result_schema" in ended.error_summary


@pytest.mark.seed(156, 158)
def test_a_cooperative_cancel(admin: AdminClient, tmp_path: Path) -> None:
    """The job learns it, tidies up and ends by itself, long before its grace is over."""
    began, tidied = tmp_path / "began", tmp_path / "tidied"
    script = f"""
open({str(began)!r}, 'w')
while not job.cancelled(): time.sleep(0.05)
open({str(tidied)!r}, 'w')
raise SystemExit(toban.CANCELLED_EXIT_CODE)
"""
    cancel = {"mode": "cooperative", "grace_seconds": 600}
    run = start(admin, "tidy", python(script), python("pass"), cancel=cancel)
    admin.until(lambda: began.exists() or None, of="it runs")
    admin.cancel(run)
    ended = admin.until_ended(run)
    assert (ended.state, tidied.exists()) == ("CANCELED", True)
    assert [(step.id, step.state) for step in ended.steps] == [("step-1", "cancelled"), ("step-2", "skipped")]


@pytest.mark.seed(138)
def test_a_step_that_is_not_cancelable_is_ended_by_a_kill_alone(admin: AdminClient, tmp_path: Path) -> None:
    began = tmp_path / "began"
    script = f"open({str(began)!r}, 'w')\nwhile not job.cancelled(): time.sleep(0.05)\nprint('told', flush=True)\ntime.sleep(600)"
    run = start(admin, "protected", python(script, cancelable=False), cancel={"grace_seconds": 1})
    admin.until(lambda: began.exists() or None, of="it runs")
    admin.cancel(run)
    admin.until(lambda: "told" in admin.log(run) or None, of="it was told")
    assert admin.run(run).state == "CANCEL_REQUESTED"
    admin.cancel(run, mode="kill")
    assert admin.until_ended(run).state == "CANCELED"


def test_steps_and_a_retry_from_the_one_that_failed(
    admin: AdminClient, toban_here: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    def step_log(*words: str) -> str:
        done = toban_here("run", "logs", str(run), "--step", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    count = tmp_path / "count"
    flaky = {"argv": ["sh", "-c", f"test -e {count} || {{ touch {count}; echo failing; exit 4; }}"], "name": "Flaky"}
    first = {"argv": ["sh", "-c", f"echo x >> {count}.first; echo one; echo two"]}
    run = start(
        admin, "resumes", first, flaky, {"argv": ["echo", "last"]}, retry={"max_retries": 1, "from": "failed_step"}
    )
    ended = admin.until_ended(run)
    assert (ended.state, ended.attempt, ended.phase) == ("SUCCEEDED", 2, "step-3")
    assert Path(f"{count}.first").read_text() == "x\n"
    assert [(step.name or step.id, step.state, step.exit_code) for step in ended.steps] == [
        ("step-1", "skipped", 0),
        ("Flaky", "succeeded", 0),
        ("step-3", "succeeded", 0),
    ]
    assert (ended.steps[2].seq_from, ended.steps[2].seq_to) == (1, 1)
    before, after = ([(step.id, step.state) for step in attempt.steps] for attempt in ended.attempts)
    assert before == [("step-1", "succeeded"), ("step-2", "failed")]
    assert after == [("step-2", "succeeded"), ("step-3", "succeeded")]
    # Each step by its name, also one that only the first attempt has run.
    assert step_log("step-1") == "one\ntwo\n"
    assert step_log("Flaky", "--attempt", "1") == "failing\n"
    assert step_log("3") == "last\n"


def test_templates_fill_in_argv_and_env_and_words_stay_words(admin: AdminClient) -> None:
    """The payload, the run and the result of the run before. A value with blanks and quotes is one argument."""
    script = """
import json, os, sys
print(sys.argv[1:], os.environ["WHO"])
print("::output " + json.dumps({"n": int(sys.argv[3]) + 1}) + "::")
"""
    words = ["${{ payload.user.name }}", "$${{ x", "${{ previous.result.n ?? 0 }}"]
    step = {"argv": [sys.executable, "-c", script, *words]}
    payload = {"user": {"name": "A'da; $(reboot)"}}
    env = {"WHO": "run ${{ run.id }} of ${{ run.job }}, slot '${{ slot }}'"}
    for number in ("0", "1"):
        run = start(admin, "filled", step, default_payload=payload, env=env)
        ended = admin.until_ended(run)
        assert (ended.state, json.loads(ended.result_json)) == ("SUCCEEDED", {"n": int(number) + 1})
        [line, _] = admin.log(run)
        assert line == f"{[payload['user']['name'], '${{ x', number]} run {run} of filled, slot ''"


def test_a_reference_to_nothing_fails_that_run_alone(admin: AdminClient) -> None:
    run = start(admin, "refers", {"argv": ["echo", "${{ payload.who }}"]})
    ended = admin.until_ended(run)
    assert (ended.state, ended.reason) == ("FAILED", "spawn_failed")
    assert ended.error_summary.startswith("TEMPLATE_INVALID: steps[0].argv[1]: there is no payload.who")
    [other] = admin.start("refers", payload={"who": "Ada"})
    assert admin.until_ended(other).state == "SUCCEEDED"
    assert admin.log(other) == ["Ada"]


def test_the_payload_of_a_schedule_has_its_slot(admin: AdminClient, toban: Callable[..., str]) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "pattern": "^20"}}, "required": ["at"]}
    start(
        admin,
        "slotted",
        {"argv": ["echo", "${{ payload.at }}", "${{ slot }}"]},
        default_payload={"at": "2000"},
        payload_schema=schema,
    )
    payload = {"at": "${{ slot }}", "who": "${{ schedule.name }}"}
    spec = {"job": "slotted", "interval_seconds": 2, "payload": payload}
    admin.apply({"apiVersion": "toban/v1", "kind": "Schedule", "metadata": {"name": "every"}, "spec": spec})

    def ended() -> Any:
        runs = [run for run in admin.runs(schedule="every") if run.state == "SUCCEEDED"]
        return runs if len(runs) >= 2 else None

    try:
        runs = admin.until(ended, of="two slots")
    finally:
        toban("schedule", "delete", "every")
    for run in runs:
        slot = run.slot.ToDatetime().isoformat() + "+00:00"
        assert json.loads(admin.run(run.id).payload_json) == {"at": slot, "who": "every"}
        assert admin.log(run.id) == [f"{slot} {slot}"]
