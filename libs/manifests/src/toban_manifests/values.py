"""Types of values that several kinds of manifests share: texts, names, mappings of texts, payloads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toban_domain.errors import TobanError
from toban_domain.event import TriggerSpec
from toban_domain.job import JobSpec
from toban_domain.payload import check_payload, kind_of
from toban_domain.schedule import ScheduleSpec
from toban_manifests.section import Section, in_quotes, key, problem, raise_problems

NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
API_VERSION = "toban/v1"
DAY = 86_400
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_TEXT = 4096


UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """False for a text that is too long, or has a NUL character or half a character (a lone surrogate), which PostgreSQL cannot store."""
    return len(text) <= _MAX_TEXT and UNSTORABLE.search(text) is None


def _check_text(value: str) -> str:
    if not is_storable(value):
        raise problem("is too long, or has a NUL character or a lone surrogate", f"use at most {_MAX_TEXT} characters")
    return value


def _check_name(value: str) -> str:
    if value and not NAME.fullmatch(value):
        raise problem(
            f"{value!r} is not a name",
            "use a-z, 0-9, '.', '_', '-', beginning and ending with a letter or digit, at most 128",
        )
    return value


def _check_folder(value: str) -> str:
    if value and not value.startswith("/"):
        raise problem(f"{value!r} is not absolute", ABSOLUTE)
    return value


ABSOLUTE = "write it from / on (`toban apply -f` resolves it against the folder of the file)"
Text = Annotated[str, AfterValidator(_check_text), WithJsonSchema({"type": "string", "maxLength": _MAX_TEXT})]
Name = Annotated[Text, AfterValidator(_check_name), WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})]
Folder = Annotated[Text, AfterValidator(_check_folder), WithJsonSchema({"type": "string", "maxLength": _MAX_TEXT})]


def _text_problems(value: Mapping[Any, Any], names: re.Pattern[str], what: str) -> Iterator[PydanticCustomError]:
    for name, item in value.items():
        if not isinstance(name, str) or not names.fullmatch(name):
            yield problem(f"{name!r} is not a name of a {what}")
        elif not isinstance(item, str):
            hint = f"put it into quotes: {name}: {in_quotes(item)}"
            yield problem(f"must be text, is {kind_of(item)}", hint, below=f".{name}")
        elif not is_storable(item):
            hint = f"use at most {_MAX_TEXT} characters"
            yield problem("is too long, or has a NUL character or a lone surrogate", hint, below=f".{name}")


def _check_labels(value: Any) -> Any:
    raise_problems(_text_problems(_mapping(value), _LABEL, "label"))
    return value


def _check_env(value: Any) -> Any:
    reserved = [
        problem("names beginning with TOBAN_ are set by the executor", "choose another name", below=f".{name}")
        for name in _mapping(value)
        if str(name).startswith("TOBAN_")
    ]
    raise_problems([*_text_problems(value, _ENV_NAME, "variable"), *reserved])
    return value


def _texts_schema(names: re.Pattern[str]) -> WithJsonSchema:
    text = {"type": "string", "maxLength": _MAX_TEXT}
    return WithJsonSchema(
        {"type": "object", "propertyNames": {"pattern": f"^{names.pattern}$"}, "additionalProperties": text}
    )


Labels = Annotated[dict[str, str], BeforeValidator(_check_labels), _texts_schema(_LABEL)]
Env = Annotated[dict[str, str], BeforeValidator(_check_env), _texts_schema(_ENV_NAME)]


def check_json(value: Any) -> dict[str, Any]:
    """A JSON object of at most 32 KiB."""
    try:
        check_payload(_mapping(value))
    except TobanError as error:
        raise problem(error.message, code=error.code) from None
    except TypeError as error:
        raise problem(f"cannot be written as JSON: {error}", "put dates into quotes") from None
    return dict(value)


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise problem(f"must be a mapping, is {kind_of(value)}", "write `name: value` lines below it")
    return value


Payload = Annotated[dict[str, Any], PlainValidator(check_json), WithJsonSchema({"type": "object"})]


class Metadata(Section):
    """Name, description and labels of a document."""

    MEANT = {"title": "name"}

    name: Name = key(
        ...,
        "a-z, 0-9, `.`, `_`, `-`, beginning and ending with a letter or digit, at most 128; one a kind",
        "nightly-report",
        type_name="name",
    )
    description: Text = key("", "for people", "Makes the report")
    labels: Labels = key({}, "for people and filters", {"team": "ops"})


def check_version(value: str) -> str:
    """The only version that there is."""
    if value != API_VERSION:
        raise problem(f"is {value!r}", f"this version reads {API_VERSION}")
    return value


ApiVersion = Annotated[Text, AfterValidator(check_version), WithJsonSchema({"const": API_VERSION})]


class ManifestModel(Section):
    """What every document has; each kind adds its `spec`."""

    MEANT = {"name": "metadata", "version": "apiVersion", "api_version": "apiVersion"}
    # The smallest document of the kind, as people write it.
    EXAMPLE: ClassVar[str]

    apiVersion: ApiVersion
    kind: str
    metadata: Metadata

    def to_spec(self) -> JobSpec | ScheduleSpec | TriggerSpec:
        """As the domain has it."""
        raise NotImplementedError
