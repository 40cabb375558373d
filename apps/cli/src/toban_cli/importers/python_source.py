"""Values of Python source, read from its syntax tree: nothing of the file is ever executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from toban_cli.importers.result import Options

_LONGEST = 60
_MOST = 10**15
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class NotLiteral(ValueError):
    """The value is only known to who executes the file: the expression."""


class Unreadable(ValueError):
    """The text is no Python source: why."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call in place of a value: crontab(hour=3). `name` is dotted, as imported."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    text: str

    def __repr__(self) -> str:
        """As it is written in the file, also within a list."""
        return self.text

    @property
    def short(self) -> str:
        """The name without its module."""
        return self.name.rpartition(".")[2]


@dataclass(slots=True)
class Source:
    """A module: its tree, what its names stand for, its functions."""

    tree: ast.Module
    constants: dict[str, ast.expr] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """The value of literals, of names that are assigned once, and of sums and products; raises NotLiteral."""
        if depth > 50:
            raise NotLiteral(text_of(node))
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(item, depth + 1) for item in node.elts]
            case ast.Dict():
                return self._mapping(node, depth)
            case ast.Name() if node.id in self.constants:
                return self.value(self.constants[node.id], depth + 1)
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand, depth)
            case ast.BinOp():
                return self._computed(node, depth)
            case ast.Call():
                return self._called(node, depth)
            case ast.Attribute() | ast.Name() if self.dotted(node).lower().endswith((".utc", "timezone.utc")):
                return "UTC"
        raise NotLiteral(text_of(node))

    def dotted(self, node: ast.expr) -> str:
        """A name or attribute as imported: "datetime.timedelta"; "" for other expressions."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, node.id)
        inner = self.dotted(node.value) if isinstance(node, ast.Attribute) else ""
        return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""

    def _mapping(self, node: ast.Dict, depth: int) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, depth + 1)
            if key is None:
                made |= value if isinstance(value, dict) else {}
                continue
            name = self.value(key, depth + 1)
            if not isinstance(name, str | int | float):
                raise NotLiteral(text_of(key))
            made[name] = value
        return made

    def _number(self, node: ast.expr, depth: int) -> Any:
        value = self.value(node, depth + 1)
        if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
            raise NotLiteral(text_of(node))
        return value

    def _computed(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str):
            return left + right
        done = _OPERATORS.get(type(node.op))
        numbers = self._number(node.left, depth), self._number(node.right, depth)
        try:
            made = done(*numbers) if done else None
        except (ArithmeticError, TypeError):
            made = None
        if made is None or (not isinstance(made, timedelta) and abs(made) > _MOST):
            raise NotLiteral(text_of(node))
        return made

    def _called(self, node: ast.Call, depth: int) -> Any:
        name = self.dotted(node.func)
        if not name or any(isinstance(item, ast.Starred) for item in node.args):
            raise NotLiteral(text_of(node))
        args = tuple(self.value(item, depth + 1) for item in node.args)
        kwargs: dict[str, Any] = {}
        for item in node.keywords:
            value = self.value(item.value, depth + 1)
            kwargs |= {item.arg: value} if item.arg else value if isinstance(value, dict) else {}
        if name == "dict" and not args:
            return kwargs
        if name.rpartition(".")[2] in ("timedelta", "duration"):
            try:
                return timedelta(*args, **kwargs)
            except (TypeError, ArithmeticError, ValueError):
                raise NotLiteral(text_of(node)) from None
        return Called(name, args, kwargs, text_of(node))


def read_source(content: bytes) -> Source:
    """The module; raises Unreadable."""
    try:
        tree = ast.parse(content)
    except SyntaxError as error:
        raise Unreadable(f"line {error.lineno}: it is not Python ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"it is not Python ({error})") from None
    source = Source(tree)
    assigned: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            source.functions[node.name] = node
        for target in targets_of(node):
            # A name that is assigned again may have either value.
            if isinstance(target, ast.Name):
                source.constants.pop(target.id, None)
                if (
                    target.id not in assigned
                    and isinstance(node, ast.Assign | ast.AnnAssign)
                    and node.value is not None
                ):
                    source.constants[target.id] = node.value
                assigned.add(target.id)
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                source.imports[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(inner, ast.ImportFrom):
            module = "." * inner.level + (inner.module or "")
            for alias in inner.names:
                source.imports[alias.asname or alias.name] = (
                    f"{module}.{alias.name}" if inner.module else f"{module}{alias.name}"
                )
    return source


def targets_of(node: ast.AST) -> list[ast.expr]:
    """What an assignment assigns to."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def text_of(node: ast.AST) -> str:
    """The expression as text, cut when it is long."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        text = "an expression"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def python_step(function: str, options: Options) -> dict[str, Any]:
    """The keys of a step that calls module:function in the interpreter of the options."""
    step: dict[str, Any] = {"type": "python", "callable": function}
    if options.python_path:
        step["python_path"] = list(options.python_path)
    if options.interpreter:
        step["interpreter"] = options.interpreter
    return step


def interpreter_note(options: Options) -> list[str]:
    """The sentence about python steps whose interpreter has no packages."""
    if options.interpreter:
        return []
    return ["python steps run in the executor's own interpreter, which has no packages: import again with --interpreter FILE, the Python of"
            " an environment that has them"]  # fmt: skip


def is_json(value: Any) -> bool:
    """Whether a value of this module can be in a payload."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(is_json(item) for item in value)
    return value is None or isinstance(value, str | int | float | bool)
