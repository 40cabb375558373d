"""The base of every mapping of a manifest: strict, without unknown keys, and with our messages in place of pydantic's.

A key without a value (`key:`) counts as left out; a required one is refused with an empty text too.
All mistakes of a mapping are collected, those of its keys and those between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from toban_domain.errors import ErrorCode
from toban_domain.nearest import nearest, suggestion
from toban_domain.payload import kind_of
from toban_manifests.problems import RuleCheck


@dataclass(frozen=True, slots=True)
class Reading:
    """What the validators of one document know beside their own value: `name` from its metadata, `allow_shell` from its spec."""

    check_rule: RuleCheck
    name: str
    allow_shell: bool


@dataclass(frozen=True, slots=True)
class IfMissing:
    """Marks a required key: the remedy when it is missing."""

    hint: str


def key(
    default: Any,
    meaning: str,
    example: Any,
    *,
    type_name: str = "",
    unset: str = "",
    schema: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Any:
    """A key: its default (`...` = required), meaning and an example, both as JSON values.

    `type_name` describes the type where the schema alone does not; `unset` says what leaving it out means when no default is the same;
    `schema` adds what our own validators check; `limits` are `ge` and `le`.
    """
    extra = {**(schema or {}), "x-type": type_name, "x-unset": unset}
    if any(isinstance(limit, float) for limit in limits.values()):
        limits["allow_inf_nan"] = False
    return Field(
        default,
        description=meaning,
        examples=[example],
        json_schema_extra={name: value for name, value in extra.items() if value},
        **limits,
    )


def problem(
    message: str, hint: str = "", *, below: str = "", code: str = ErrorCode.MANIFEST_INVALID
) -> PydanticCustomError:
    """A mistake in the value that is being validated. `below` leads from its path to the place, such as ".a[0]"."""
    return PydanticCustomError("problem", "problem", {"message": message, "hint": hint, "below": below, "code": code})


def not_a_mapping(value: object) -> PydanticCustomError:
    """The mistake of a value that should have keys."""
    return problem(f"must be a mapping, is {kind_of(value)}", "write `key: value` lines below it")


def raise_problems(problems: Iterable[PydanticCustomError | InitErrorDetails]) -> None:
    """Raises all of them at once; returns when there are none."""
    details = [
        InitErrorDetails(type=one, input=None) if isinstance(one, PydanticCustomError) else one for one in problems
    ]
    if details:
        raise ValidationError.from_exception_data("manifest", details)


def problems_of(error: ValidationError) -> list[InitErrorDetails]:
    """What `error` holds, to be raised together with more."""
    return [
        InitErrorDetails(type=problem(**one["ctx"]), loc=one["loc"], input=None)
        for one in error.errors(include_url=False)
    ]


Found = Iterable[PydanticCustomError]


class Section(BaseModel):
    """A mapping with fixed keys."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # Usual mistakes, and the key that was meant.
    MEANT: ClassVar[Mapping[str, str]] = {}
    # Keys that belong to the format and not to this version.
    LATER: ClassVar[tuple[str, ...]] = ()

    _known: ClassVar[Mapping[str, FieldInfo]]
    # Required mappings: a missing one is read as an empty one, which names what it lacks.
    _parts: ClassVar[tuple[str, ...]]

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        # A key that is a word of Python has another name as an attribute.
        cls._known = {field.alias or name: field for name, field in cls.model_fields.items()}
        cls._parts = tuple(name for name, field in cls._known.items() if field.is_required() and _is_section(field))

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        found: list[PydanticCustomError | InitErrorDetails] = []
        if not isinstance(value, Mapping):
            # What it lacks is reported too.
            found, value = [not_a_mapping(value)], {}
        given = {name: item for name, item in value.items() if name in cls._known and item is not None}
        empty = {name for name, item in given.items() if item == "" and cls._known[name].is_required()}.difference(
            cls._parts
        )
        for name in empty:
            del given[name]
        for name in cls._parts:
            given.setdefault(name, {})
        found += cls.check_before(given)
        wrong: set[str] = set()
        made: Self | None = None
        try:
            made = handler(given)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            wrong = {str(one["loc"][0]) for one in errors if one["loc"]}
            found += [cls._translate(one, empty) for one in errors]
        found += cls.check_after(given, wrong, cast(Reading, info.context))
        found += cls._refused(value)
        raise_problems(found)
        assert made is not None
        return made

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Found:  # noqa: ARG003 (for subclasses)
        """Mistakes between keys, before the values are read; may take keys out."""
        return ()

    @classmethod
    def check_after(cls, given: dict[str, Any], wrong: set[str], reading: Reading) -> Found:  # noqa: ARG003
        """Mistakes that only show when keys other than the `wrong` ones are sound."""
        return ()

    @classmethod
    def _refused(cls, value: Mapping[Any, Any]) -> Iterator[PydanticCustomError]:
        for name in cls.LATER:
            if value.get(name) is not None:
                yield problem("is not available in this version", "take it out", below=f".{name}")
        for name in value:
            if name not in cls._known and name not in cls.LATER:
                near = cls.MEANT.get(str(name)) or nearest(str(name), cls._known)
                hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(cls._known)}"
                yield problem("is not a known key", hint, below=f".{name}")

    @classmethod
    def _translate(cls, error: Any, empty: Set[str]) -> InitErrorDetails:
        """An error of pydantic with our message; one that a validator here raised as it is. `empty` keys are there without a text."""
        loc = error["loc"]
        if error["type"] == "problem":
            return InitErrorDetails(type=problem(**error["ctx"]), loc=loc, input=None)
        name = str(loc[0])
        message, hint = _describe(name, cls._known[name], "empty" if name in empty else error["type"], error["input"])
        return InitErrorDetails(type=problem(message, hint), loc=loc, input=None)


def part(model: type[Section], meaning: str) -> Any:
    """A key whose value is a mapping with defaults for all of its keys."""
    empty = model()
    return Field(default_factory=lambda: empty, description=meaning)


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, Section)


def in_quotes(value: object) -> str:
    """A value of another type as the text that was perhaps meant, in quotes."""
    return f'"{str(value).lower() if isinstance(value, bool) else value}"'


def _describe(name: str, field: FieldInfo, what: str, value: Any) -> tuple[str, str]:
    """Message and hint for a mistake of a type of pydantic's own."""
    marks = {type(mark): mark for mark in field.metadata}
    if what in ("missing", "empty"):
        mark = marks.get(IfMissing)
        remedy = f"add `{name}:`" if what == "missing" else f"write a value after `{name}:`"
        return f"is {what}", mark.hint if mark else remedy
    if what == "bool_type":
        return f"must be true or false, is {repr(value) if isinstance(value, str) else kind_of(value)}", ""
    if what == "int_type":
        return f"must be a whole number, is {repr(value) if isinstance(value, str | float) else kind_of(value)}", ""
    if what == "float_type" and (isinstance(value, bool) or not isinstance(value, int)):
        return f"must be a number, is {kind_of(value)}", ""
    if what in ("greater_than_equal", "less_than_equal", "finite_number", "float_type"):
        low, high = (next(getattr(mark, end) for mark in field.metadata if hasattr(mark, end)) for end in ("ge", "le"))
        return f"is {value}", f"use {low:g} … {high:g}" if isinstance(high, float) else f"use {low} … {high}"
    if what in ("literal_error", "string_unicode") and isinstance(value, str):
        return _not_a_choice(value, _choices(field.annotation))
    return f"must be text, is {kind_of(value)}", 'put it into quotes: "…"'


def _not_a_choice(value: str, choices: tuple[str, ...]) -> tuple[str, str]:
    return f"is {value!r}", suggestion(value, choices, f"use one of {', '.join(choices)}")


def _choices(annotation: Any) -> tuple[str, ...]:
    """The values of a Literal, also of one that may be left out."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((found for one in get_args(annotation) if (found := _choices(one))), ())
