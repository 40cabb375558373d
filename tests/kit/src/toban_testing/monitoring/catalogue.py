"""All metrics of Toban, parsed from the declarations in the source: `metrics.counter("toban_…", "meaning", ("label",))`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = {"counter": "counter", "gauge": "gauge", "leader_gauge": "gauge", "histogram": "histogram"}
GRPC = ("coordinator", "executor", "log-archiver")
ALL = (*GRPC, "admin-web")
# Source prefix → services that expose the metrics declared below it; the longest matching prefix applies.
SERVICES = {
    "services/coordinator/": ("coordinator",),
    "services/executor/": ("executor",),
    "services/log-archiver/": ("log-archiver",),
    "services/admin-web/": ("admin-web",),
    "services/coordinator/src/toban_coordinator/store/": ("coordinator",),
    "services/log-archiver/src/toban_log_archiver/store/": ("log-archiver",),
    "libs/store/": ("coordinator", "log-archiver"),
    "libs/fencing/": ("coordinator",),
    "libs/transport/src/toban_transport/tls": ALL,
    "libs/transport/": GRPC,
    "libs/runtime/": GRPC,
    "libs/observability/": ALL,
}
LABELS = {
    "action": "a kind of operator action: a fixed list",
    "call": "a kind of call: a fixed list",
    "check": "a check of /healthz: a fixed list per service",
    "code": "OK or a code of [errors.md](errors.md)",
    "end": "the fixed list in the metric's description",
    "kind": "the fixed list in the metric's description",
    "loop": "a loop of a service: a fixed list",
    "method": "a gRPC method: those of [the protos](../proto/toban_proto/v1)",
    "mode": "the fixed list in the metric's description",
    "origin": "slot, demand, event, rerun",
    "outcome": "the fixed list in the metric's description",
    "part": "a part of a loop's work: a fixed list",
    "path": "the fixed list in the metric's description",
    "pool": "a connection pool: a fixed list per service",
    "reason": "a fixed list of reasons",
    "refusal": "why an executor refuses a start: a fixed list",
    "result": "the fixed list in the metric's description",
    "service": "coordinator, executor, log-archiver, admin-web",
    "source": "call, sql",
    "state": "a state of a run or an executor, or the fixed list in the metric's description",
    "status": "a status of a schedule, or an HTTP status code",
    "table": "a table of PostgreSQL: a fixed list",
    "version": "a release",
    "worker_type": "a type of external workers: a bounded number of them, and other",
    "view": "a page of the site: a fixed list",
}
"""Label → its bounded values. Other labels are rejected: runs, jobs, schedules, users and addresses are never labels."""

PROCESS = (
    ("toban_process_cpu_seconds_total", "counter", "User and system CPU time of the process."),
    ("toban_process_max_fds", "gauge", "Maximum number of open file descriptors."),
    ("toban_process_open_fds", "gauge", "Number of open file descriptors."),
    ("toban_process_resident_memory_bytes", "gauge", "Resident memory size."),
    ("toban_process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970."),
    ("toban_process_virtual_memory_bytes", "gauge", "Virtual memory size."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One declaration. `leader`: only the leader exposes it; `where` is its module, relative to the root of the repository."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    services: tuple[str, ...] = ALL
    leader: bool = False
    where: str = ""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series in queries."""
        return (
            tuple(f"{self.name}_{end}" for end in ("bucket", "sum", "count"))
            if self.kind == "histogram"
            else (self.name,)
        )


def declared(root: Path) -> list[Metric]:
    """All metrics, sorted by name. Raises ValueError for a declaration without literals, and for a duplicate name."""
    found: dict[str, Metric] = {}
    for path in sorted(path for group in ("apps", "libs", "services") for path in root.glob(f"{group}/*/src/**/*.py")):
        where = path.relative_to(root).as_posix()
        if where.startswith("libs/proto/"):
            continue
        for metric in _of_module(ast.parse(path.read_text(encoding="utf-8")), where):
            if metric.name in found:
                raise ValueError(f"{metric.name} is declared in {found[metric.name].where} and in {where}")
            found[metric.name] = metric
    for name, kind, meaning in PROCESS:
        found[name] = Metric(name=name, kind=kind, meaning=meaning, where="prometheus_client")
    return [found[name] for name in sorted(found)]


def _of_module(tree: ast.Module, where: str) -> Iterator[Metric]:
    inside = where == "libs/observability/src/toban_observability/metrics.py"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        called = (
            function.attr
            if isinstance(function, ast.Attribute)
            else function.id
            if isinstance(function, ast.Name)
            else ""
        )
        of_metrics = (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id == "metrics"
        )
        if called in KINDS and (of_metrics or (inside and isinstance(function, ast.Name))):
            yield _of_call(node, called, where)


def _of_call(call: ast.Call, called: str, where: str) -> Metric:
    given = dict(zip(("name", "meaning", "labels"), call.args, strict=False)) | {
        keyword.arg: keyword.value for keyword in call.keywords if keyword.arg
    }
    try:
        name, meaning, labels = (
            ast.literal_eval(given.get(key, ast.Tuple([]))) for key in ("name", "meaning", "labels")
        )
    except ValueError:
        raise ValueError(f"{where}:{call.lineno}: name, meaning and labels of a metric have to be literals") from None
    return Metric(
        name=name,
        kind=KINDS[called],
        meaning=meaning,
        labels=tuple(labels),
        services=_services(where),
        leader=called == "leader_gauge",
        where=where,
    )


def _services(where: str) -> tuple[str, ...]:
    fitting = [prefix for prefix in SERVICES if where.startswith(prefix)]
    if not fitting:
        raise ValueError(f"{where}: add the services that expose its metrics to SERVICES")
    return SERVICES[max(fitting, key=len)]


def problems(found: list[Metric]) -> list[str]:
    """Violations of Prometheus' conventions for names, labels and descriptions."""
    wrong = []
    for metric in found:
        if metric.kind == "counter" and not metric.name.endswith("_total"):
            wrong.append(f"{metric.name}: the name of a counter must end in _total")
        if metric.kind == "histogram" and not metric.name.endswith(("_seconds", "_bytes")):
            wrong.append(f"{metric.name}: the name of a histogram must end in its base unit")
        if metric.kind != "counter" and metric.name.endswith(("_total", "_count", "_sum", "_bucket")):
            wrong.append(f"{metric.name}: this suffix is reserved")
        if any(
            unit in metric.name.split("_")
            for unit in ("ms", "milliseconds", "minutes", "hours", "days", "kb", "mb", "percent")
        ):
            wrong.append(f"{metric.name}: base units only (seconds, bytes, ratio)")
        if not metric.meaning.endswith(".") or metric.meaning[0].islower():
            wrong.append(f"{metric.name}: the description must be a sentence")
        wrong += [f"{metric.name}: label {label!r} is not in LABELS" for label in metric.labels if label not in LABELS]
    return wrong


def page(found: list[Metric]) -> str:
    """The content of docs/metrics.md."""
    parts = [_HEAD]
    shared = [metric for metric in found if len(metric.services) > 1]
    parts.append(_table("Several services", shared, services=True))
    for service in ALL:
        own = [metric for metric in found if metric.services == (service,)]
        parts.append(_table(service, own, services=False))
    used = sorted({label for metric in found for label in metric.labels})
    rows = "\n".join(f"| `{label}` | {LABELS[label]} |" for label in used)
    parts.append(f"## Labels\nAll labels are bounded.\n\n| label | values |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _table(title: str, found: list[Metric], *, services: bool) -> str:
    head = f"## {title}\n\n| metric | type | labels | description |{' services |' if services else ''}\n"
    head += f"|---|---|---|---|{'---|' if services else ''}\n"
    return head + "".join(_row(metric, services=services) for metric in found)


def _row(metric: Metric, *, services: bool) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    kind = "gauge, leader" if metric.leader else metric.kind
    who = f" {'all' if metric.services == ALL else ', '.join(metric.services)} |" if services else ""
    return f"| `{metric.name}` | {kind} | {labels} | {metric.meaning} |{who}\n"


_HEAD = """# Metrics

<!-- Generated by scripts/gen-metrics from the declarations in the source. Do not edit: run it again. -->

Every service exposes its metrics at `/metrics` on its admin port, in Prometheus' text format. Times are in seconds, sizes in
bytes. A counter ends in `_total` and is queried with `rate()`; a histogram has `_bucket`, `_sum` and `_count`. A *gauge, leader*
describes the whole cluster: only the leader exposes it, updated at least every 15 seconds, and it is absent while there is no
leader. [monitoring.md](monitoring.md) describes alerts, the dashboard, and where to start.
"""
