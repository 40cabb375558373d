"""`@job`: a function that is a job, with its schedule or trigger beside the code. `toban sync MODULE` applies it (docs/sdk.md)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from toban.declaring import keys
from toban.declaring.model import Declaration, DeclarationError, Place, check_values, declare, schedule_of

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDeclaration(Declaration):
    """A function as a job: `callable` is module:name."""

    callable: str
    warm: bool

    @property
    def title(self) -> str:
        """As errors name it."""
        return f"function {self.callable!r}"

    def step(self, place: Place) -> dict[str, Any]:
        """The step, `type: python`."""
        return {
            "type": "python",
            "callable": self.callable,
            "python_path": [place.folder],
            "interpreter": place.interpreter,
            **({"warm": True} if self.warm else {}),
        }


def job(
    *,
    name: str = "",
    description: str = "",
    cron: str | None = None,
    daily_at: str | None = None,
    weekly_at: str | None = None,
    hourly_at_minute: int | None = None,
    every_n_minutes: int | None = None,
    interval_seconds: int | None = None,
    tz: str = "",
    payload: Mapping[str, Any] | None = None,
    warm: bool = False,
    schedule: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Callable[[F], F]:
    """Declares that a function is a job, which a schedule starts, the events of a `trigger`, or neither. The function stays as it is.

    The rules of a schedule are in `tz`, UTC without one: `cron`, `daily_at` ("02:30"), `weekly_at` ("mon-fri 02:30"), `hourly_at_minute`,
    `every_n_minutes` and `interval_seconds`. The name is that of the function with `-` for `_`, unless given, and the description the
    first line of its docstring. The default payload has the defaults of its parameters that are JSON, and `payload` over them. `spec`
    are keys of a job such as `timeout_seconds`, `retry`, `labels` and `secrets`; `schedule` and `trigger` have further keys of theirs
    (docs/manifests.md).

    Raises DeclarationError, which names the function: for a function that is not of a module, a name that was declared with other
    values, two rules, a rule or zone that cannot be, unknown keys, values that are not JSON, a payload that the function does not
    take, and a schedule or trigger without a parameter that has no default.

    >>> @job(cron="0 7 * * *", tz="Asia/Tokyo", timeout_seconds=600)
    ... def report_sales(days: int = 30) -> None: ...
    """
    given_rules = dict(
        zip(keys.RULES, (cron, daily_at, weekly_at, hourly_at_minute, every_n_minutes, interval_seconds), strict=True)
    )

    def declare_it(function: F) -> F:
        path = f"{function.__module__}:{function.__qualname__}"
        title = f"function {path!r}"
        if "<" in function.__qualname__:
            raise DeclarationError(
                f"{title} is made in another function, so that no run could find it; define it in the module"
            )
        given = {"payload": payload, "job": spec, "schedule": schedule, "trigger": trigger}
        check_values(title, given, declarer="@job")
        made = FunctionDeclaration(
            callable=path,
            name=name or function.__name__.replace("_", "-"),
            description=description or (inspect.getdoc(function) or "").partition("\n")[0],
            warm=warm,
            payload={**_defaults(function), **(payload or {})},
            job=spec,
            schedule=schedule_of(title, given_rules, tz, schedule or {}),
            trigger=dict(trigger or {}),
        )
        _check_parameters(made, inspect.signature(function).parameters)
        declare(made)
        return function

    return declare_it


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Those of parameters that JSON has; others the function has itself."""
    kinds = (str, int, float, bool, list, dict)
    return {
        name: one.default
        for name, one in inspect.signature(function).parameters.items()
        if isinstance(one.default, kinds) and keys.is_json(one.default)
    }


def _check_parameters(made: FunctionDeclaration, parameters: Mapping[str, inspect.Parameter]) -> None:
    """The keys of a payload are keyword arguments."""
    kinds = inspect.Parameter
    if positional := [one.name for one in parameters.values() if one.kind is kinds.POSITIONAL_ONLY]:
        raise DeclarationError(f"{made.title}: {positional[0]!r} is positional only; a payload has keyword arguments")
    named = {one.name for one in parameters.values() if one.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)}
    takes_any = any(one.kind is kinds.VAR_KEYWORD for one in parameters.values())
    for where, payload in made.payloads():
        if not takes_any and (unknown := sorted(set(payload) - named)):
            raise DeclarationError(
                f"{made.title}: {where} has {', '.join(map(repr, unknown))}; the function takes {', '.join(sorted(named)) or 'nothing'}"
            )
    required = {name for name in named if parameters[name].default is kinds.empty}
    for where, given in (("schedule", made.schedule), ("trigger", made.trigger)):
        started_with = given.get("payload", {})
        # What is in a whole object of an event is known at the run only.
        if not given or not isinstance(started_with, Mapping):
            continue
        if missing := sorted(required - {*made.payload, *started_with}):
            names = ", ".join(map(repr, missing))
            raise DeclarationError(
                f"{made.title}: the {where} starts it without {names}; add a default, or give `payload`"
            )
