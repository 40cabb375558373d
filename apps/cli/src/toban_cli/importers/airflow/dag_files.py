"""The DAGs of a file, with their tasks and the order of these, from its syntax tree."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from toban_cli.importers.python_source import Function, NotLiteral, Source, targets_of, text_of

_DAG = "DAG"
_DECORATOR = "dag"
_ENDS = ("Operator", "Sensor")
_LISTS = ("set_downstream", "set_upstream")
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
# Calls that make no task: of builtins, of other modules, and methods of texts and mappings. Those with functions as arguments are not here.
_PLAIN = frozenset("print str int float bool len range open sorted min max repr dict list tuple set".split())  # noqa: SIM905
_PLAIN_ENDS = frozenset("TaskGroup Dataset Asset Label Param get format join split items keys values replace lower upper strip".split())  # fmt: skip # noqa: SIM905
_PLAIN_MODULES = frozenset(sys.stdlib_module_names) | {"pendulum"}


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
    """A DAG. `problems` are parts of it that are not read; `edges` are pairs of places in `tasks`.

    `held` are the places of the tasks that a variable holds, as of the last statement.
    """

    name: str
    line: int
    kwargs: dict[str, Any]
    tasks: list[Task] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    held: dict[str, list[int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    doc: str = ""

    def order(self) -> tuple[list[Task], bool]:
        """The tasks, each behind those that it waits for, and whether they are one chain. Raises ValueError for a circle."""
        before = [{first for first, second in self.edges if second == place} for place in range(len(self.tasks))]
        done: list[int] = []
        chain = True
        while len(done) < len(before):
            free = [place for place in range(len(before)) if place not in done and before[place] <= set(done)]
            if not free:
                raise ValueError("its tasks wait for each other in a circle")
            chain = chain and len(free) == 1
            done.append(free[0])
        return [self.tasks[place] for place in done], chain


def find_dags(source: Source) -> list[Dag]:
    """The DAGs in the order of their lines: `with DAG(...)`, `x = DAG(...)` and functions below `@dag`."""
    dags: list[Dag] = []
    of_variable: dict[str, list[Dag]] = {}
    seen: set[int] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.With):
            for item in node.items:
                dag = None
                if _is_dag(item.context_expr, source):
                    assert isinstance(item.context_expr, ast.Call)
                    dag = _dag(item.context_expr, source)
                    dags.append(dag)
                    if isinstance(item.optional_vars, ast.Name):
                        of_variable.setdefault(item.optional_vars.id, []).append(dag)
                elif isinstance(item.context_expr, ast.Name) and item.context_expr.id in of_variable:
                    dag = of_variable[item.context_expr.id][-1]
                if dag is not None:
                    _Body(dag, source, seen).read(node.body)
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if _short(decorator, source) == _DECORATOR:
                    dags.append(_decorated(node, decorator, source, seen))
        elif isinstance(node, ast.Assign) and _is_dag(node.value, source) and isinstance(node.targets[0], ast.Name):
            assert isinstance(node.value, ast.Call)
            dag = _dag(node.value, source)
            dags.append(dag)
            of_variable.setdefault(node.targets[0].id, []).append(dag)
    _loose_tasks(source, of_variable, seen)
    return sorted(dags, key=lambda dag: dag.line)


def _loose_tasks(source: Source, of_variable: Mapping[str, Sequence[Dag]], seen: set[int]) -> None:
    """Tasks that name their DAG (dag=dag), and the order of these, at the top of the module; others that name it are problems."""
    for variable, dags in of_variable.items():
        dag = dags[-1]
        before = len(dag.tasks), len(dag.problems)
        body = _Body(dag, source, seen, (variable,))
        body.read(source.tree.body)
        body.report_unread(source.tree, into_definitions=True)
        if len(dags) > 1 and before != (len(dag.tasks), len(dag.problems)):
            for one in dags:
                one.problems.append(
                    f"tasks with dag={variable}: {len(dags)} DAGs have this variable; give each DAG its own"
                )


def _dag(call: ast.Call, source: Source) -> Dag:
    dag = Dag("", call.lineno, {})
    dag.kwargs = _arguments(call, source, dag.problems, {})
    if call.args:
        _put(dag.kwargs, "dag_id", call.args[0], source, dag.problems)
    name = dag.kwargs.get("dag_id")
    dag.name = name if isinstance(name, str) else ""
    return dag


def _decorated(node: ast.FunctionDef, decorator: ast.expr, source: Source, seen: set[int]) -> Dag:
    dag = _dag(decorator, source) if isinstance(decorator, ast.Call) else Dag("", node.lineno, {})
    dag.name = dag.name or node.name
    dag.doc = ast.get_docstring(node) or ""
    _Body(dag, source, seen).read(node.body)
    return dag


class _Body:
    """Reads the statements below a DAG. With `variables`, only tasks that name one of them as their dag.

    `seen` are the ids of the nodes that were read or reported; what makes tasks and is not among them becomes a problem of the DAG.
    """

    def __init__(self, dag: Dag, source: Source, seen: set[int], variables: Iterable[str] = ()) -> None:
        self._dag = dag
        self._source = source
        self._seen = seen
        self._variables = set(variables)
        self._decorated = {name for name, node in source.functions.items() if self._is_task_function(node)}

    def read(self, body: Sequence[ast.stmt]) -> None:
        for node in body:
            self._statement(node)

    def report_unread(self, node: ast.AST, *, into_definitions: bool = False) -> None:
        """Problems for the calls and comprehensions below the node that may make tasks and were not read."""
        for unread in list(self._unread(node, into_definitions)):
            self._dag.problems.append(
                f"line {unread.lineno}: {text_of(unread)} may make tasks, which are not read: write a step for each"
            )
            self._see(unread)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign() | ast.AnnAssign() if node.value is not None:
                for target in targets_of(node):
                    self._assign(target, node.value)
            case ast.Expr() | ast.Return() if node.value is not None:
                self._value(node.value)
            case ast.With() if not self._variables:
                # A TaskGroup: its tasks are tasks of the DAG.
                for item in node.items:
                    self.report_unread(item)
                self.read(node.body)
                return
            case ast.With():
                # A block of a DAG, which was read as such.
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if self._is_task_function(node):
                    self._decorated.add(node.name)
                return
            case ast.For() | ast.AsyncFor() | ast.If() | ast.While() | ast.Try() | ast.TryStar() | ast.Match():
                if any(self._unread(node, False)) or self._orders(node):
                    what = type(node).__name__.lower()
                    self._dag.problems.append(f"line {node.lineno}: tasks that are made in a {what}, or their order")
                    self._see(node)
                return
        self.report_unread(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for one, item in zip(target.elts, value.elts, strict=False):
                self._assign(one, item)
        elif id(value) not in self._seen:
            variable = target.id if isinstance(target, ast.Name) else ""
            places = self._value(value, variable)
            self._dag.held.pop(variable, None)
            if variable and places:
                self._dag.held[variable] = places

    def _is_task_function(self, node: Function) -> bool:
        return any("task" in self._source.dotted(_callee(one)).split(".") for one in node.decorator_list)

    def _see(self, node: ast.AST) -> None:
        self._seen |= {id(inner) for inner in ast.walk(node)}

    def _unread(self, node: ast.AST, into_definitions: bool) -> Iterator[ast.expr]:
        if isinstance(node, ast.Call | _COMPREHENSIONS):
            if isinstance(node, ast.Call) and id(node) not in self._seen and self._may_make_tasks(node):
                yield node
                return
            inner = (one for child in ast.iter_child_nodes(node) for one in self._unread(child, into_definitions))
            if isinstance(node, _COMPREHENSIONS) and any(inner):
                yield node
                return
        for child in ast.iter_child_nodes(node):
            if into_definitions or not isinstance(child, _DEFINITIONS):
                yield from self._unread(child, into_definitions)

    def _may_make_tasks(self, call: ast.Call) -> bool:
        name = self._source.dotted(call.func)
        end = call.func.attr if isinstance(call.func, ast.Attribute) else name.rpartition(".")[2]
        if self._variables:
            given = (*call.args, *(item.value for item in call.keywords))
            names = {item.id for item in given if isinstance(item, ast.Name)}
            return bool(names & self._variables) and name not in _PLAIN
        if name in self._source.functions:
            return True
        # A function may have the name of a module, such as grp: only an import makes it one.
        module = name.partition(".")[0]
        imported = any(full.partition(".")[0] == module for full in self._source.imports.values())
        return name not in _PLAIN and end not in _PLAIN_ENDS and not (imported and module in _PLAIN_MODULES)

    def _orders(self, node: ast.AST) -> bool:
        """Whether something below the node puts tasks in an order."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.RShift | ast.LShift):
                names = {one.id for one in ast.walk(inner) if isinstance(one, ast.Name)}
                if not self._variables or names & set(self._dag.held):
                    return True
        return False

    def _is_task(self, node: ast.expr) -> bool:
        """Whether the node is the call of an operator: by its name, or because it gives a task_id to a class."""
        if not isinstance(node, ast.Call):
            return False
        name = _short(node, self._source)
        return name.endswith(_ENDS) or (name[:1].isupper() and any(item.arg == "task_id" for item in node.keywords))

    def _belongs(self, call: ast.Call) -> bool:
        if not self._variables:
            return True
        named = {item.value.id for item in call.keywords if item.arg == "dag" and isinstance(item.value, ast.Name)}
        return bool(named & self._variables)

    def _value(self, node: ast.expr, variable: str = "") -> list[int]:
        """The places of the tasks that an expression stands for; those that it makes are added, with the order that it gives."""
        match node:
            case ast.Name():
                return self._dag.held.get(node.id, [])
            case ast.List() | ast.Tuple():
                return [place for item in node.elts for place in self._value(item)]
            case ast.BinOp(op=ast.RShift() | ast.LShift()):
                return self._shifted(node)
            case ast.Call() if id(node) in self._seen:
                return []
            case ast.Call() if self._is_task(node):
                return self._task(node, variable) if self._belongs(node) else []
            case ast.Call(func=ast.Attribute(attr=attr) as function) if attr in _LISTS:
                self._listed(node, function)
            case ast.Call() if _short(node, self._source) in ("chain", "cross_downstream"):
                self._chained(node)
            case ast.Call(func=ast.Name(id=name)) if name in self._decorated and not self._variables:
                return self._decorated_task(node, name, variable)
        return []

    def _task(self, call: ast.Call, variable: str) -> list[int]:
        task = Task(variable, _short(call, self._source), {})
        task.kwargs = _arguments(call, self._source, task.problems, task.functions)
        task.variable = variable or f"line-{call.lineno}"
        self._see(call)
        self._dag.tasks.append(task)
        return [len(self._dag.tasks) - 1]

    def _decorated_task(self, call: ast.Call, function: str, variable: str) -> list[int]:
        self._seen.add(id(call))
        given = (*call.args, *(keyword.value for keyword in call.keywords))
        before = [place for item in given for place in self._value(item)]
        self._dag.tasks.append(Task(variable or function, "@task", {"task_id": function}))
        place = len(self._dag.tasks) - 1
        self._dag.edges += [(one, place) for one in before]
        return [place]

    def _operands(self, *nodes: ast.expr) -> list[list[int]]:
        """The tasks of each operand; one without tasks is a problem, unless all of them may be of another DAG."""
        groups = [self._value(node) for node in nodes]
        for node, places in zip(nodes, groups, strict=True):
            if not places and (not self._variables or any(groups)):
                self._dag.problems.append(f"line {node.lineno}: the order of {text_of(node)}")
                self._see(node)
        return groups

    def _shifted(self, node: ast.BinOp) -> list[int]:
        left, right = self._operands(node.left, node.right)
        first, second = (left, right) if isinstance(node.op, ast.RShift) else (right, left)
        self._dag.edges += [(one, other) for one in first for other in second]
        return right

    def _listed(self, call: ast.Call, function: ast.Attribute) -> None:
        self._seen.add(id(call))
        one, *groups = self._operands(function.value, *call.args)
        pairs = [(first, second) for first in one for group in groups for second in group]
        self._dag.edges += pairs if function.attr == "set_downstream" else [(second, first) for first, second in pairs]

    def _chained(self, call: ast.Call) -> None:
        self._seen.add(id(call))
        groups = self._operands(*call.args)
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
