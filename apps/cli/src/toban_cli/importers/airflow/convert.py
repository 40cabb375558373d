"""DAG files to jobs and schedules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta

from toban_cli.importers.airflow.dag_files import Dag, find_dags
from toban_cli.importers.airflow.schedule import read_schedule
from toban_cli.importers.airflow.steps import read_steps
from toban_cli.importers.names import Names
from toban_cli.importers.python_source import Source, Unreadable, interpreter_note, read_source
from toban_cli.importers.result import Draft, Entry, Imported, Options, Place, entry_of, lost

_FOR_ALL = (
    "a run starts at the time of its schedule, as in Airflow; its slot is that time, and not the begin of the data interval",
    "functions get the payload as keyword arguments, without Airflow's context, XCom, Variables and Connections",
)
_KNOWN = frozenset(
    """dag_id schedule schedule_interval timetable start_date end_date catchup is_paused_upon_creation max_active_runs default_args
    description tags doc_md dagrun_timeout default_view orientation dag_display_name""".split()  # noqa: SIM905 (a list of words)
)
# Of default_args: what is read, or has no effect here.
_KNOWN_DEFAULTS = frozenset(
    """owner retries retry_delay retry_exponential_backoff max_retry_delay execution_timeout start_date end_date depends_on_past
    wait_for_downstream trigger_rule provide_context""".split()  # noqa: SIM905 (a list of words)
)
_LABEL = re.compile(r"[^\w .,:/@+-]")


def convert(files: Iterable[tuple[str, bytes]], options: Options) -> Imported:
    """An entry for each DAG of the files, which are given with their names; a file that is no Python is an entry, too."""
    names = Names(options.prefix)
    entries: list[Entry] = []
    notes: list[str] = []
    for file, content in files:
        try:
            source = read_source(content)
        except Unreadable as error:
            entries.append(lost(str(error), Place("file", file, file)))
            continue
        dags = find_dags(source)
        if not dags:
            notes.append(f"{file}: there is no DAG in it that is written with `with DAG(...)`, `DAG(...)` or `@dag`")
        entries += [_entry(dag, file, source, options, names) for dag in dags]
    for_all = [*_FOR_ALL, options.zone_note, *interpreter_note(options)]
    return Imported(entries=entries, notes=notes, for_all=for_all, counted=("DAG", "DAGs"))


def _entry(dag: Dag, file: str, source: Source, options: Options, names: Names) -> Entry:
    place = Place("DAG", dag.name or f"of line {dag.line}", file, f"{file}, line {dag.line}")
    if not dag.name:
        return lost("its dag_id is not written in the file, and the file is not executed: write it", place)
    draft = Draft(name=names.name(dag.name, file), job={}, description=str(dag.kwargs.get("description") or dag.doc))
    defaults = dag.kwargs.get("default_args") or {}
    draft.missing += dag.problems
    try:
        tasks, chain = dag.order()
    except ValueError as error:
        return lost(str(error), place)
    read_steps(tasks, defaults, source, options, draft)
    if not draft.job["steps"]:
        reasons = f": {'; '.join(draft.missing)}" if draft.missing else ""
        return lost(f"no task of it can be carried over{reasons}", place)
    if not chain:
        draft.notes.append(
            f"tasks that Airflow runs side by side run one after the other, the first failure ends the run: {', '.join(task.name for task in tasks)}"
        )
    _limits(dag, draft)
    read_schedule({**defaults, **dag.kwargs}, options.timezone, draft)
    _labels(dag, draft)
    left = [name for name in dag.kwargs if name not in _KNOWN]
    left += [f"default_args.{name}" for name in defaults if name not in _KNOWN_DEFAULTS]
    if left:
        draft.notes.append(f"NOT carried over: {', '.join(left)}")
    return entry_of(draft, place, options.origin_of("airflow", file))


def _limits(dag: Dag, draft: Draft) -> None:
    most = dag.kwargs.get("max_active_runs")
    if most == 1:
        draft.job["concurrency"] = {"policy": "queue"}
    else:
        limit = {"limit": most} if isinstance(most, int) and most > 1 else {}
        draft.job["concurrency"] = {"policy": "allow", **limit}
    limit_of_run = dag.kwargs.get("dagrun_timeout")
    if isinstance(limit_of_run, timedelta):
        draft.job["timeout_seconds"] = max(1, int(limit_of_run.total_seconds()))
        draft.notes.append("dagrun_timeout bounds a run with its retries; timeout_seconds bounds each attempt")


def _labels(dag: Dag, draft: Draft) -> None:
    tags = dag.kwargs.get("tags")
    owner = (dag.kwargs.get("default_args") or {}).get("owner")
    labels = {
        "airflow/tags": ", ".join(map(str, tags)) if isinstance(tags, list) else "",
        "airflow/owner": str(owner or ""),
    }
    draft.labels = {name: _LABEL.sub(" ", value) for name, value in labels.items() if value}
