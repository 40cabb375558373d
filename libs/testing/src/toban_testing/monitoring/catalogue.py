"""Every metric of Toban, read from the declarations in the source: `metrics.counter("toban_…", "meaning", ("label",))`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = {"counter": "counter", "gauge": "gauge", "leader_gauge": "gauge", "histogram": "histogram"}
GRPC = ("coordinator", "executor", "log-archiver")
ALL = (*GRPC, "admin-web")
# The longest prefix that fits says which services have what is declared below it.
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
    "action": "what an operator did: a fixed list",
    "call": "a kind of call: a fixed list",
    "check": "a check of /healthz: a fixed list a service",
    "code": "OK or a code of [errors.md](errors.md)",
    "end": "a fixed list that the metric's meaning names",
    "kind": "a fixed list that the metric's meaning names",
    "loop": "a loop of a service: a fixed list",
    "method": "a gRPC method: those of [the protos](../proto/toban_proto/v1)",
    "mode": "a fixed list that the metric's meaning names",
    "origin": "slot, demand, event, rerun",
    "outcome": "a fixed list that the metric's meaning names",
    "pool": "a connection pool: a fixed list a service",
    "reason": "a fixed list of named reasons",
    "refusal": "why an executor refuses a start: a fixed list",
    "result": "a fixed list that the metric's meaning names",
    "service": "coordinator, executor, log-archiver, admin-web",
    "source": "call, sql",
    "state": "a state of a run or an executor, or a fixed list that the metric's meaning names",
    "status": "a status of a schedule, or of HTTP",
    "table": "a table of PostgreSQL: a fixed list",
    "version": "the release",
    "view": "a page of the site: a fixed list",
}
"""Label → what bounds its values. A label that is not here is refused: no run, job, schedule, user or address is ever one."""

PROCESS = (
    ("toban_process_cpu_seconds_total", "counter", "CPU time of the process."),
    ("toban_process_max_fds", "gauge", "Open files that the process may have."),
    ("toban_process_open_fds", "gauge", "Open files of the process."),
    ("toban_process_resident_memory_bytes", "gauge", "Memory of the process in RAM."),
    ("toban_process_start_time_seconds", "gauge", "When the process started, in seconds since 1970."),
    ("toban_process_virtual_memory_bytes", "gauge", "Address space of the process."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One declaration. `leader`: only the leader shows it; `where` is its module, from the root of the repository."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()
    services: tuple[str, ...] = ALL
    leader: bool = False
    where: str = ""

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may use."""
        return (
            tuple(f"{self.name}_{end}" for end in ("bucket", "sum", "count"))
            if self.kind == "histogram"
            else (self.name,)
        )


def declared(root: Path) -> list[Metric]:
    """Every metric, by name. Raises ValueError for a declaration that cannot be read without running it, and for a name that is there twice."""
    found: dict[str, Metric] = {}
    for path in sorted([*root.glob("libs/*/src/**/*.py"), *root.glob("services/*/src/**/*.py")]):
        where = path.relative_to(root).as_posix()
        if where.startswith(("libs/testing/", "libs/proto/")):
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
        raise ValueError(f"{where}: say in SERVICES which services have its metrics")
    return SERVICES[max(fitting, key=len)]


def problems(found: list[Metric]) -> list[str]:
    """What is wrong with names, labels and meanings, after the rules of Prometheus."""
    wrong = []
    for metric in found:
        if metric.kind == "counter" and not metric.name.endswith("_total"):
            wrong.append(f"{metric.name}: a counter ends in _total")
        if metric.kind == "histogram" and not metric.name.endswith(("_seconds", "_bytes")):
            wrong.append(f"{metric.name}: a histogram ends in its base unit")
        if metric.kind != "counter" and metric.name.endswith(("_total", "_count", "_sum", "_bucket")):
            wrong.append(f"{metric.name}: only a counter may end so")
        if any(
            unit in metric.name.split("_")
            for unit in ("ms", "milliseconds", "minutes", "hours", "days", "kb", "mb", "percent")
        ):
            wrong.append(f"{metric.name}: base units only (seconds, bytes, ratio)")
        if not metric.meaning.endswith(".") or metric.meaning[0].islower():
            wrong.append(f"{metric.name}: its meaning is a sentence")
        wrong += [
            f"{metric.name}: label {label!r} is not among the bounded ones"
            for label in metric.labels
            if label not in LABELS
        ]
    return wrong


def page(found: list[Metric]) -> str:
    """docs/metrics.md."""
    parts = [_HEAD]
    shared = [metric for metric in found if len(metric.services) > 1]
    parts.append(_table("Several services", shared, services=True))
    for service in ALL:
        own = [metric for metric in found if metric.services == (service,)]
        parts.append(_table(service, own, services=False))
    used = sorted({label for metric in found for label in metric.labels})
    rows = "\n".join(f"| `{label}` | {LABELS[label]} |" for label in used)
    parts.append(f"## Labels\nAll are bounded.\n\n| label | values |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _table(title: str, found: list[Metric], *, services: bool) -> str:
    head = f"## {title}\n\n| metric | type | labels | meaning |{' services |' if services else ''}\n"
    head += f"|---|---|---|---|{'---|' if services else ''}\n"
    return head + "".join(_row(metric, services=services) for metric in found)


def _row(metric: Metric, *, services: bool) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    told = "gauge, leader" if metric.leader else metric.kind
    who = f" {'all' if metric.services == ALL else ', '.join(metric.services)} |" if services else ""
    return f"| `{metric.name}` | {told} | {labels} | {metric.meaning} |{who}\n"


_HEAD = """# Metrics

<!-- Generated by scripts/gen-metrics from the declarations in the source. Do not edit: run it again. -->

Every service serves them at `/metrics` on its admin port, in Prometheus' text format. Times are seconds, sizes bytes; a counter ends in `_total`
and is read with `rate()`; a histogram has `_bucket`, `_sum` and `_count`. *Gauge, leader* is a figure of the whole cluster: the leader alone tells
it, each 15 seconds at the latest, and it is gone where nobody leads. [monitoring.md](monitoring.md) says how to use them: alerts, dashboard, and
what to look at first.
"""
