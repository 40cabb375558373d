"""`toban import airflow`: DAGs are read from the syntax tree; tasks, orders and times that no job has are named."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toban_cli.importers.airflow.convert import convert
from toban_cli.importers.result import Entry, Fate, Imported, Options

Toban = Callable[..., tuple[int, str, str]]
HEAD = """\
from datetime import datetime, timedelta, timezone
import pendulum
from airflow import DAG
from airflow.decorators import dag, task
from airflow.operators.bash import BashOperator
from airflow.operators.python import PythonOperator
from airflow.operators.empty import EmptyOperator
from airflow.providers.http.operators.http import HttpOperator
from airflow.models.baseoperator import chain
from shop.report import make, Loader
import shop.jobs
def here(): ...
"""


def imported(text: str, **options: Any) -> Imported:
    return convert([("etl.py", text.encode())], Options(**options))


def entry_of(body: str, keys: str = "schedule='@daily', catchup=False") -> Entry:
    """The entry of one DAG with these statements below it."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    [entry] = imported(f"{HEAD}with DAG('etl', {keys}) as d:\n{lines}").entries
    return entry


def spec_of(entry: Entry, place: int = 0) -> dict[str, Any]:
    spec = entry.documents[place]["spec"]
    assert isinstance(spec, dict)
    return spec


A, B, C = (f"{name} = BashOperator(task_id='{name}', bash_command='/bin/{name}')\n" for name in "abc")


def test_a_dag_becomes_a_job_and_a_schedule() -> None:
    text = f"""{HEAD}
ARGS = {{"owner": "data", "retries": 2, "retry_delay": timedelta(minutes=5), "on_failure_callback": here}}
with DAG(
    dag_id="etl",
    description="Loads",
    schedule="30 2 * * 1-5",
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    default_args=ARGS,
    tags=["etl", "shop"],
) as d:
    start = EmptyOperator(task_id="start")
    extract = BashOperator(task_id="extract", bash_command="extract --all | gzip > x", execution_timeout=timedelta(hours=1))
    load = PythonOperator(task_id="load", python_callable=Loader.run, op_kwargs={{"table": "orders"}})
    start >> extract >> load
"""
    [entry] = imported(text, interpreter="/srv/.venv/bin/python").entries
    assert entry.fate is Fate.CONVERTED
    assert spec_of(entry) == {
        "allow_shell": True,
        "steps": [
            {"id": "extract", "argv": ["/bin/bash", "-c", "extract --all | gzip > x"], "timeout_seconds": 3600},
            {
                "id": "load",
                "type": "python",
                "callable": "shop.report:Loader.run",
                "interpreter": "/srv/.venv/bin/python",
            },
        ],
        "default_payload": {"table": "orders"},
        "retry": {"max_retries": 2, "backoff_seconds": [300.0], "from": "failed_step"},
        "concurrency": {"policy": "queue"},
    }
    assert spec_of(entry, 1) == {
        "job": "etl",
        "cron": "30 2 * * 1-5",
        "timezone": "Europe/Berlin",
        "start": "2026-01-01T00:00:00+01:00",
        "catch_up": "one",
    }
    labels = entry.documents[0]["metadata"]["labels"]
    assert labels == {"airflow/tags": "etl, shop", "airflow/owner": "data", "origin": "airflow"}
    assert "NOT carried over: default_args.on_failure_callback" in "\n".join(entry.notes)


@pytest.mark.parametrize(
    "text",
    [
        f"with DAG('etl', schedule='@hourly', catchup=False):\n    {A}    {B}    a >> b",
        f"d = DAG(dag_id='etl', schedule_interval='@hourly', catchup=False)\n{A}{B}a >> b".replace(
            "task_id", "dag=d, task_id"
        ),
        f"@dag(schedule='@hourly', catchup=False)\ndef etl():\n    {A}    {B}    a >> b\netl()",
        f"with DAG('etl', schedule='@hourly', catchup=False):\n    {A}    {B}    b << a",
        f"with DAG('etl', schedule='@hourly', catchup=False):\n    {B}    {A}    chain(a, b)",
        f"with DAG('etl', schedule='@hourly', catchup=False):\n    {B}    {A}    b.set_upstream(a)",
        "with DAG('etl', schedule='@hourly', catchup=False):\n"
        "    BashOperator(task_id='a', bash_command='/bin/a') >> BashOperator(task_id='b', bash_command='/bin/b')",
        f"with DAG('etl', schedule='@hourly', catchup=False):\n  with TaskGroup('g'):\n    {A}    {B}    a >> b",
    ],
)
def test_dags_are_found_where_people_write_them(text: str) -> None:
    [entry] = imported(HEAD + text).entries
    assert entry.fate is Fate.CONVERTED
    assert spec_of(entry)["steps"] == [{"id": "a", "argv": ["/bin/a"]}, {"id": "b", "argv": ["/bin/b"]}]
    assert spec_of(entry, 1)["cron"] == "@hourly"


def test_orders(subtests: pytest.Subtests) -> None:
    rows = {
        "a >> b >> c": ("abc", False),
        "c >> [a, b]": ("cab", True),
        "[b, c] >> a": ("bca", True),
        "a >> c\nb >> c": ("abc", True),
        "": ("abc", True),
        "c.set_downstream([b])\nb >> a": ("cba", False),
    }
    for order, (expected, noted) in rows.items():
        with subtests.test(order):
            entry = entry_of(f"{A}{B}{C}{order}")
            assert entry.fate is Fate.CONVERTED
            assert "".join(step["id"] for step in spec_of(entry)["steps"]) == expected
            assert any("side by side" in note for note in entry.notes) is noted
    assert "in a circle" in entry_of(f"{A}{B}a >> b >> a").outcome


def test_times(subtests: pytest.Subtests) -> None:
    rows: dict[str, dict[str, Any] | None] = {
        "schedule=timedelta(hours=2)": {"interval_seconds": 7200, "catch_up": "one"},
        "schedule=CronTriggerTimetable('0 3 * * *', timezone='Asia/Tokyo')": {
            "cron": "0 3 * * *",
            "timezone": "Asia/Tokyo",
        },
        "schedule='0 3 * * *', start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)": {
            "start": "2026-01-01T00:00:00+00:00"
        },
        "schedule='0 3 13 * 5'": {"cron": "0 3 13 * 5"},
        "schedule='0 3 * * *', catchup=True": {"catch_up": "all"},
        "schedule='0 3 * * *', is_paused_upon_creation=True": {"enabled": False},
        "schedule='0 3 */2 * 5'": None,
        "schedule='@once'": None,
        "schedule=[Dataset('s3://x')]": None,
        "schedule='0 3 * * *', start_date=datetime(2026, 13, 1)": None,
        "catchup=False": None,
    }
    for keys, expected in rows.items():
        with subtests.test(keys):
            entry = entry_of(A, keys)
            assert entry.fate is (Fate.UNTIMED if expected is None else Fate.CONVERTED)
            if expected is not None:
                assert {key: spec_of(entry, 1)[key] for key in expected} == expected
    outcomes = {
        "schedule=[Dataset('s3://x'), Asset('y')]": "[Dataset('s3://x'), Asset('y')] is no cron expression and no timedelta; let an event",
        "schedule=Dataset('s3://x')": "its schedule Dataset('s3://x') is no cron expression and no timedelta; let an event",
        "schedule=EventsTimetable([1])": "EventsTimetable([1]) is no cron expression and no timedelta;",
        "schedule=Dataset('x') | Dataset('y')": "its schedule is not written in the file",
        "schedule=[Lag(datetime(2026, 1, 1))]": "[Lag(datetime(2026, 1, 1))] is no cron expression and no timedelta;",
    }
    for keys, outcome in outcomes.items():
        with subtests.test(keys):
            assert outcome in entry_of(A, keys).outcome
    none = entry_of(A, "schedule=None")
    assert (none.fate, len(none.documents)) == (Fate.CONVERTED, 1)


def test_a_dag_without_a_part_that_it_needs_is_not_scheduled(subtests: pytest.Subtests) -> None:
    rows = {
        "HttpOperator(task_id='h')": "task h (HttpOperator): write a step",
        "PythonOperator(task_id='p', python_callable=here)": "its function here is in the DAG file",
        "PythonOperator(task_id='p', python_callable=lambda: 1)": "is not imported from a module",
        "PythonOperator(task_id='p', python_callable=make, op_args=[1])": "op_args",
        "PythonOperator(task_id='p', python_callable=make, op_kwargs={'day': '{{ ds }}'})": "template of Jinja",
        "BashOperator(task_id='b', bash_command='echo {{ ds }}')": "template of Jinja",
        "BashOperator(task_id='b', bash_command=command())": "is not written in the file",
        "BashOperator(task_id='b', bash_command='b', trigger_rule='all_done')": "trigger_rule=all_done",
        "BashOperator(task_id='b', bash_command='b', cwd='/srv')": "cwd differs",
        "for n in names:\n    BashOperator(task_id=n, bash_command=n)": "tasks that are made in a for",
        "group() >> a": "the order of group()",
        "@task\ndef f(): ...\nf()": "task f (@task): its function is in the DAG file",
        "BashOperator(**common)": "**common has no value",
    }
    for body, reason in rows.items():
        with subtests.test(body):
            entry = entry_of(f"{A}{body}")
            assert entry.fate is Fate.PARTIAL
            assert any(note.startswith("MISSING: ") and reason in note for note in entry.notes)
            assert spec_of(entry, 1)["enabled"] is False


def test_each_task_of_a_list_and_of_a_variable_that_is_used_again_is_a_step(subtests: pytest.Subtests) -> None:
    first, second = A.removeprefix("a = ").strip(), B.removeprefix("b = ").strip()
    rows = {
        f"more = [{first}, {second}]\n{C}more >> c": "abc",
        f"{C}more = [{first}, {second}]\nc >> more": "cab",
        f"a, b = {first}, {second}\nb >> a": "ba",
        f"t = {first}\nt = {second}\n{C}c >> t": "acb",
        f"t = {first}\n{C}c >> t\nt = {second}\nt >> c": "bca",
    }
    for body, steps in rows.items():
        with subtests.test(body):
            entry = entry_of(body)
            assert (entry.fate, [step["id"] for step in spec_of(entry)["steps"]]) == (Fate.CONVERTED, list(steps))


def test_what_may_make_tasks_and_is_not_read_is_missing(subtests: pytest.Subtests) -> None:
    rows = {
        "more = [BashOperator(task_id=n, bash_command=n) for n in NAMES]": "BashOperator(task_id=n",
        "[build(n) for n in NAMES]": "build(n)",
        "BashOperator.partial(task_id='x').expand(bash_command=NAMES)": "BashOperator.partial(task_id='x').expand",
        "@task_group\ndef g():\n    BashOperator(task_id='x', bash_command='x')\ng()": "g() may make tasks",
        "@task_group\ndef grp():\n    BashOperator(task_id='x', bash_command='x')\ngrp()": "grp() may make tasks",
        "x = helpers.build_tasks(d)": "helpers.build_tasks(d)",
        "Copy(task_id='x', source='y')": "task x (Copy): write a step",
        "more = {'x': BashOperator(task_id='x', bash_command='x')}": "BashOperator(task_id='x'",
        "more.append(BashOperator(task_id='x', bash_command='x'))": "more.append(",
        "@task\ndef f(x): ...\nf.override(task_id='x')(1)": "f.override(task_id='x')(1)",
        "with helpers.group():\n    pass": "helpers.group()",
        "for one in NAMES:\n    helpers.build(one)": "tasks that are made in a for",
        "for one in [a]:\n    a >> one": "or their order",
    }
    for body, reason in rows.items():
        with subtests.test(body):
            entry = entry_of(f"{A}{body}")
            assert entry.fate is Fate.PARTIAL
            [missing] = [note for note in entry.notes if note.startswith("MISSING: ")]
            assert reason in missing
    plain = "print('x')\nday = datetime(2026, 1, 1)\nname = ', '.join(str(n) for n in NAMES)\nx = Variable.get('x')"
    assert entry_of(f"{A}{plain}").fate is Fate.CONVERTED


def test_tasks_that_name_their_dag_beside_a_block_of_it(subtests: pytest.Subtests) -> None:
    head = f"{HEAD}d = DAG('etl', schedule='@daily', catchup=False)\n"
    loose, loose_b = A.replace("task_id", "dag=d, task_id"), B.replace("task_id", "dag=d, task_id")
    rows: dict[str, tuple[str, str]] = {
        f"{loose}with d:\n    {B}    {C}    b >> c\na >> b": ("abc", ""),
        f"{loose}helpers.build(d)": ("a", "helpers.build(d)"),
        f"{loose}def more():\n    {loose_b}": ("a", "BashOperator(dag=d, task_id='b'"),
        f"{loose}with TaskGroup('g', dag=d):\n    {B}": ("a", "TaskGroup('g', dag=d)"),
        f"{loose}if x:\n    {loose_b}": ("a", "made in a if"),
        f"{loose}if __name__ == '__main__':\n    d.test()": ("a", ""),
    }
    for text, (steps, reason) in rows.items():
        with subtests.test(text):
            [entry] = imported(head + text).entries
            missing = [note for note in entry.notes if note.startswith("MISSING: ")]
            assert ("".join(step["id"] for step in spec_of(entry)["steps"]), len(missing)) == (steps, bool(reason))
            assert all(reason in note for note in missing)
    two = f"{head}{loose}d = DAG('other', schedule='@daily', catchup=False)\n{loose_b}"
    assert all("give each DAG its own" in f"{entry.outcome}{entry.notes}" for entry in imported(two).entries)
    apart = f"{HEAD}with DAG('x', schedule=None) as d:\n    {A}with DAG('y', schedule=None) as d:\n    {B}"
    assert [entry.fate for entry in imported(apart).entries] == [Fate.CONVERTED] * 2


def test_python_steps_share_their_payload() -> None:
    p, q = (f"PythonOperator(task_id='{name}', python_callable=shop.jobs.run, op_kwargs={{}})\n" for name in "pq")
    same = entry_of((p + q).replace("{}", "{'a': 1}"))
    assert [step["callable"] for step in spec_of(same)["steps"]] == ["shop.jobs:run"] * 2
    assert spec_of(same)["default_payload"] == {"a": 1}
    assert entry_of(p + q.replace("{}", "{'a': 1}")).fate is Fate.PARTIAL


def test_what_cannot_be_a_job_says_why(subtests: pytest.Subtests) -> None:
    rows = {
        f"{HEAD}with DAG(name()):\n    {A}": "its dag_id is not written in the file",
        f"{HEAD}with DAG('x'):\n    HttpOperator(task_id='h')": "no task of it can be carried over: task h",
        "def": "line 1: it is not Python",
    }
    for text, reason in rows.items():
        with subtests.test(text[-20:]):
            [entry] = imported(text).entries
            assert (entry.fate, entry.documents) == (Fate.LOST, ())
            assert reason in entry.outcome


def test_the_command(toban: Toban, tmp_path: Path) -> None:
    file = tmp_path / "etl.py"
    file.write_text(
        f"{HEAD}open('{tmp_path}/executed', 'w')\nwith DAG('etl', schedule='@daily', catchup=False):\n    {A}"
    )
    (tmp_path / "none.py").write_text("x = 1\n")
    code, out, err = toban("import", "airflow", str(file), str(tmp_path / "none.py"))
    assert code == 0
    assert "none.py: there is no DAG in it" in err
    assert err.endswith("1 DAG: 1 job, 1 schedule; nothing was left out\n")
    assert out.startswith(f"# DAG etl: {file}, line ")
    assert not (tmp_path / "executed").exists()


def test_any_change_of_a_file_ends_in_the_report() -> None:
    text = f"{HEAD}with DAG('etl', schedule='@daily', default_args={{'retries': 1}}, tags=['x'], max_active_runs=2) as d:\n    {A}    {B}    a >> b"
    size = sum(isinstance(node, ast.Constant | ast.Name | ast.Call) for node in ast.walk(ast.parse(text)))
    fates = set()
    for place in range(size):
        for odd in ("None", "-1", "[{}]", "f(1)", "{1: 2}", "x.y"):
            changed = _Changed(place, ast.parse(odd, mode="eval").body).visit(ast.parse(text))
            for entry in imported(ast.unparse(ast.fix_missing_locations(changed))).entries:
                fates.add(entry.fate)
                assert entry.outcome
                assert bool(entry.documents) == (entry.fate is not Fate.LOST)
    assert fates == {Fate.LOST, Fate.PARTIAL, Fate.UNTIMED, Fate.CONVERTED}


class _Changed(ast.NodeTransformer):
    """Replaces one value."""

    def __init__(self, place: int, value: ast.expr) -> None:
        self._left, self._value = place, value

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant | ast.Name | ast.Call):
            self._left -= 1
            if self._left < 0:
                self._left = 10**6
                return self._value
        return super().visit(node)
