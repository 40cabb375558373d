"""The DAGs of a file, with their tasks and the order of these, from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from toban_cli.importers.python_source import Function, NotLiteral, Source, targets_of, text_of

_DAG = "DAG"
_DECORATOR = "dag"
_ENDS = ("Operator", "Sensor")
_LISTS = ("set_downstream", "set_upstream")


@dataclass(slots=True)
class Task:
    """A task: the variable that holds it, its operator, its arguments. `functions` are arguments that name functions."""

    variable: str
    operator: str
    kwargs: dict[str, Any]
    functions: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its task_id."""
        name = self.kwargs.get("task_id")
        return name if isinstance(name, str) else self.variable


@dataclass(slots=True)
class Dag:
    """A DAG. `problems` are parts of it that only an executed file has; `edges` are pairs of variables."""

    name: str
    line: int
    kwargs: dict[str, Any]
    tasks: dict[str, Task] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    doc: str = ""

    def order(self) -> tuple[list[Task], bool]:
        """The tasks, each behind those that it waits for, and whether they are one chain. Raises ValueError for a circle."""
        before = {name: {first for first, second in self.edges if second == name} for name in self.tasks}
        done: list[str] = []
        chain = True
        while len(done) < len(before):
            free = [name for name in before if name not in done and before[name] <= set(done)]
            if not free:
                raise ValueError("its tasks wait for each other in a circle")
            chain = chain and len(free) == 1
            done.append(free[0])
        return [self.tasks[name] for name in done], chain


def find_dags(source: Source) -> list[Dag]:
    """The DAGs in the order of their lines: `with DAG(...)`, `x = DAG(...)` and functions below `@dag`."""
    dags: list[Dag] = []
    of_variable: dict[str, Dag] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.With):
            for item in node.items:
                if _is_dag(item.context_expr, source):
                    assert isinstance(item.context_expr, ast.Call)
                    dag = _dag(item.context_expr, source)
                    dags.append(dag)
                    if isinstance(item.optional_vars, ast.Name):
                        of_variable[item.optional_vars.id] = dag
                    _Body(dag, source).read(node.body)
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if _short(decorator, source) == _DECORATOR:
                    dags.append(_decorated(node, decorator, source))
        elif isinstance(node, ast.Assign) and _is_dag(node.value, source) and isinstance(node.targets[0], ast.Name):
            assert isinstance(node.value, ast.Call)
            dag = _dag(node.value, source)
            dags.append(dag)
            of_variable[node.targets[0].id] = dag
    _loose_tasks(source, of_variable)
    return sorted(dags, key=lambda dag: dag.line)


def _loose_tasks(source: Source, of_variable: Mapping[str, Dag]) -> None:
    """Tasks that name their DAG (dag=dag), and the order of these, at the top of the module."""
    for dag in of_variable.values():
        variables = {name for name, other in of_variable.items() if other is dag}
        _Body(dag, source, variables).read(source.tree.body)


def _dag(call: ast.Call, source: Source) -> Dag:
    dag = Dag("", call.lineno, {})
    dag.kwargs = _arguments(call, source, dag.problems, {})
    if call.args:
        _put(dag.kwargs, "dag_id", call.args[0], source, dag.problems)
    name = dag.kwargs.get("dag_id")
    dag.name = name if isinstance(name, str) else ""
    return dag


def _decorated(node: ast.FunctionDef, decorator: ast.expr, source: Source) -> Dag:
    dag = _dag(decorator, source) if isinstance(decorator, ast.Call) else Dag("", node.lineno, {})
    dag.name = dag.name or node.name
    dag.doc = ast.get_docstring(node) or ""
    _Body(dag, source).read(node.body)
    return dag


class _Body:
    """Reads the statements below a DAG. With `variables`, only tasks that name one of them as their dag."""

    def __init__(self, dag: Dag, source: Source, variables: Iterable[str] = ()) -> None:
        self._dag = dag
        self._source = source
        self._variables = set(variables)
        self._decorated = {name for name, node in source.functions.items() if self._is_task_function(node)}

    def read(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign() | ast.AnnAssign() if node.value is not None:
                targets = [target.id for target in targets_of(node) if isinstance(target, ast.Name)]
                self._value(node.value, targets[0] if targets else "")
            case ast.Expr():
                self._value(node.value, "")
            case ast.With() if not self._variables:
                # A TaskGroup: its tasks are tasks of the DAG.
                self.read(node.body)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if self._is_task_function(node):
                    self._decorated.add(node.name)
            case ast.For() | ast.If() | ast.While() | ast.Try():
                if self._has_tasks(node):
                    self._dag.problems.append(
                        f"line {node.lineno}: tasks that are made in a {type(node).__name__.lower()}"
                    )

    def _is_task_function(self, node: Function) -> bool:
        return any("task" in self._source.dotted(_callee(one)).split(".") for one in node.decorator_list)

    def _has_tasks(self, node: ast.AST) -> bool:
        calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
        return any(self._is_task(call) and self._belongs(call) for call in calls)

    def _is_task(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and _short(node, self._source).endswith(_ENDS)

    def _belongs(self, call: ast.Call) -> bool:
        if not self._variables:
            return True
        named = {item.value.id for item in call.keywords if item.arg == "dag" and isinstance(item.value, ast.Name)}
        return bool(named & self._variables)

    def _value(self, node: ast.expr, variable: str) -> None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift | ast.LShift):
            self._shifted(node)
        elif isinstance(node, ast.Call):
            if self._is_task(node):
                if self._belongs(node):
                    self._task(node, variable)
            elif isinstance(node.func, ast.Attribute) and node.func.attr in _LISTS:
                self._listed(node, node.func)
            elif _short(node, self._source) in ("chain", "cross_downstream"):
                self._chained(node)
            elif isinstance(node.func, ast.Name) and node.func.id in self._decorated:
                self._decorated_task(node, node.func.id, variable)

    def _task(self, call: ast.Call, variable: str) -> str:
        task = Task(variable, _short(call, self._source), {})
        task.kwargs = _arguments(call, self._source, task.problems, task.functions)
        task.variable = variable or f"{task.name}@{call.lineno}"
        self._dag.tasks.setdefault(task.variable, task)
        return task.variable

    def _decorated_task(self, call: ast.Call, function: str, variable: str) -> str:
        inner = [self._value_of(item) for item in (*call.args, *(keyword.value for keyword in call.keywords))]
        task = Task(variable or f"{function}@{call.lineno}", "@task", {"task_id": function})
        self._dag.tasks.setdefault(task.variable, task)
        self._dag.edges += [(name, task.variable) for names in inner for name in names]
        return task.variable

    def _value_of(self, node: ast.expr) -> list[str]:
        """The variables of the tasks that an operand stands for."""
        match node:
            case ast.Name() if node.id in self._dag.tasks:
                return [node.id]
            case ast.List() | ast.Tuple():
                return [name for item in node.elts for name in self._value_of(item)]
            case ast.BinOp(op=ast.RShift() | ast.LShift()):
                return self._shifted(node)
            case ast.Call() if self._is_task(node) and self._belongs(node):
                return [self._task(node, "")]
            case ast.Call(func=ast.Name()) if isinstance(node.func, ast.Name) and node.func.id in self._decorated:
                return [self._decorated_task(node, node.func.id, "")]
        return []

    def _operand(self, node: ast.expr) -> list[str]:
        names = self._value_of(node)
        if not names and not self._variables:
            self._dag.problems.append(f"line {node.lineno}: the order of {text_of(node)}")
        return names

    def _shifted(self, node: ast.BinOp) -> list[str]:
        left, right = self._operand(node.left), self._operand(node.right)
        first, second = (left, right) if isinstance(node.op, ast.RShift) else (right, left)
        self._dag.edges += [(one, other) for one in first for other in second]
        return right

    def _listed(self, call: ast.Call, function: ast.Attribute) -> None:
        one, others = self._operand(function.value), [name for item in call.args for name in self._operand(item)]
        pairs = [(first, second) for first in one for second in others]
        self._dag.edges += pairs if function.attr == "set_downstream" else [(second, first) for first, second in pairs]

    def _chained(self, call: ast.Call) -> None:
        groups = [self._operand(item) for item in call.args]
        for left, right in pairwise(groups):
            paired = len(left) == len(right) > 1 and _short(call, self._source) == "chain"
            self._dag.edges += list(zip(left, right, strict=True)) if paired else [(a, b) for a in left for b in right]


def _arguments(call: ast.Call, source: Source, problems: list[str], functions: dict[str, str]) -> dict[str, Any]:
    """The keyword arguments that are written in the file; `problems` gets the others, `functions` those that name functions."""
    kwargs: dict[str, Any] = {}
    for item in call.keywords:
        if item.arg is None:
            problems.append(f"**{text_of(item.value)} has no value that is written in the file")
        elif item.arg.endswith("callable") or item.arg.startswith("on_"):
            functions[item.arg] = source.dotted(item.value) or text_of(item.value)
        elif item.arg == "default_args":
            kwargs[item.arg] = _default_args(item.value, source, problems)
        elif item.arg != "dag":
            _put(kwargs, item.arg, item.value, source, problems)
    return kwargs


def _default_args(node: ast.expr, source: Source, problems: list[str]) -> dict[str, Any]:
    node = source.constants.get(node.id, node) if isinstance(node, ast.Name) else node
    if isinstance(node, ast.Call) and source.dotted(node.func) == "dict":
        pairs = [(item.arg or "", item.value) for item in node.keywords]
    elif isinstance(node, ast.Dict):
        pairs = [
            (str(key.value), value)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    else:
        problems.append(f"default_args={text_of(node)} has no value that is written in the file")
        return {}
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name.startswith("on_"):
            made[name] = text_of(value)
        else:
            _put(made, name, value, source, problems)
    return made


def _put(kwargs: dict[str, Any], name: str, node: ast.expr, source: Source, problems: list[str]) -> None:
    try:
        kwargs[name] = source.value(node)
    except NotLiteral as error:
        problems.append(f"{name}: {error} has no value that is written in the file")


def _is_dag(node: ast.expr, source: Source) -> bool:
    return isinstance(node, ast.Call) and _short(node, source) == _DAG


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _short(node: ast.expr, source: Source) -> str:
    """The last part of the name of what is called, or of a decorator."""
    return source.dotted(_callee(node)).rpartition(".")[2]
