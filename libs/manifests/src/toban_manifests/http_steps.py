"""The request of a step `type: http`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from toban_domain.errors import TobanError
from toban_domain.http_call import HEADER_NAME, HEADER_VALUE, MAX_REDIRECTS, CallError, parse_url, status_range
from toban_domain.job import compact
from toban_domain.payload import check_payload, kind_of
from toban_domain.template import MARK
from toban_manifests.section import IfMissing, Section, in_quotes, key, part, problem, raise_problems
from toban_manifests.values import Text

_MAX_HEADERS = 50
_MAX_LIST = 20
_MAX_BACKOFF = 3600
# What the program of the step sets by itself.
_OWN_HEADERS = (
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
)


def _check_url(value: str) -> str:
    # The executor checks what templates make of it.
    if MARK not in value:
        try:
            parse_url(value)
        except CallError as error:
            raise problem(f"{error}") from None
    elif not value.startswith(("http://", "https://", MARK)):
        raise problem("must begin with http:// or https://", "write https://host/path")
    return value


def _check_headers(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise problem(f"must be a mapping, is {kind_of(value)}", "write `Name: value` lines below it")
    raise_problems(_header_problems(value))
    return dict(value)


def _header_problems(headers: Mapping[Any, Any]) -> Iterator[PydanticCustomError]:
    if len(headers) > _MAX_HEADERS:
        yield problem(f"has {len(headers)} headers", f"use at most {_MAX_HEADERS}")
    names: set[str] = set()
    for name, value in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            yield problem(f"{name!r} is not a name of a header")
        elif name.lower() in _OWN_HEADERS:
            yield problem("is set by the executor", "take it out", below=f".{name}")
        elif name.lower() in names:
            yield problem("is there twice; case does not count", "take one of them out", below=f".{name}")
        elif not isinstance(value, str):
            hint = f"put it into quotes: {name}: {in_quotes(value)}"
            yield problem(f"must be text, is {kind_of(value)}", hint, below=f".{name}")
        elif len(value) > 4096 or (MARK not in value and not HEADER_VALUE.fullmatch(value)):
            hint = "use at most 4096 characters of Latin-1, without line breaks"
            yield problem("is not a value of a header", hint, below=f".{name}")
        names.add(str(name).lower())


def _check_body(value: Any) -> Any:
    if value is not None and not isinstance(value, str | Mapping | list):
        raise problem(f"must be text, a mapping or a list, is {kind_of(value)}", 'put text into quotes: "…"')
    try:
        check_payload({"body": value})
    except TobanError as error:
        raise problem(error.message.replace("the payload", "it"), code=error.code) from None
    except TypeError as error:
        raise problem(f"cannot be written as JSON: {error}", "put dates into quotes") from None
    return value


def _check_statuses(value: Any) -> list[int | str]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_LIST:
        raise problem("must be a list of statuses", f'write [200, "300-399"]; 1 to {_MAX_LIST} entries')
    raise_problems(_status_problems(value))
    return value


def _status_problems(values: list[Any]) -> Iterator[PydanticCustomError]:
    for index, value in enumerate(values):
        try:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ValueError
            status_range(value)
        except ValueError:
            yield problem(f"{value!r} is no status", 'write 204, or a range in quotes: "200-299"', below=f"[{index}]")


def _check_backoff(value: Any) -> list[int | float]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_LIST:
        raise problem("must be a list of seconds", f"write [1, 5, 30]; 1 to {_MAX_LIST} entries, the last one repeats")
    raise_problems(
        problem(f"is {one!r}", f"use seconds from 0 to {_MAX_BACKOFF}", below=f"[{index}]")
        for index, one in enumerate(value)
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one <= _MAX_BACKOFF
    )
    return value


class HttpRetry(Section):
    """Tries of one step."""

    MEANT = {"max_attempts": "attempts", "backoff": "backoff_seconds"}

    attempts: int = key(
        1,
        "tries in all; another one follows when no response comes, and after a 5xx that `expected_status` does not have",
        4,
        ge=1,
        le=20,
    )
    backoff_seconds: Annotated[
        list[int | float],
        PlainValidator(_check_backoff),
        WithJsonSchema(
            {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": _MAX_BACKOFF}, "minItems": 1}
        ),
    ] = key([1], "seconds before each further try, the last one repeats", [1, 5, 30], type_name="list of seconds")


class Http(Section):
    """A request and what its response must be."""

    MEANT = {
        "json": "body",
        "data": "body",
        "status": "expected_status",
        "retries": "retry",
        "redirects": "follow_redirects",
        "timeout": "response_timeout_seconds",
        "timeout_seconds": "response_timeout_seconds",
    }

    url: Annotated[
        Text,
        AfterValidator(_check_url),
        IfMissing("add `url: https://…`"),
    ] = key(
        ...,
        "absolute, http or https; without user and password. May have [templates](jobs.md#templates)",
        "https://api.example.com/reports",
    )
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = key("GET", "of the request", "POST")
    headers: Annotated[
        dict[str, str],
        BeforeValidator(_check_headers),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "maxLength": 4096}}),
    ] = key(
        {},
        "besides `User-Agent`, `Idempotency-Key`, `Toban-Fence` and `traceparent`, which they may replace. Values may have templates, "
        "and [secrets](http-steps.md#a-secret-in-a-header)",
        {"Accept": "application/json"},
        type_name="text to text",
    )
    body: Annotated[Any, PlainValidator(_check_body), WithJsonSchema({"type": ["string", "object", "array"]})] = key(
        None,
        "text is sent as it is; a mapping or a list as JSON, with its `Content-Type`. At most 32 KiB; texts may have templates",
        {"day": "2026-11-21"},
        type_name="text, mapping or list",
        unset="none",
    )
    expected_status: Annotated[
        list[int | str],
        PlainValidator(_check_statuses),
        WithJsonSchema({"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1}),
    ] = key(
        ["200-299"],
        "statuses and ranges that are a success; every other one fails the step",
        [200, "400-404"],
        type_name="list of statuses",
    )
    response_timeout_seconds: int = key(
        60, "how long the server may be silent; then the try has failed", 10, ge=1, le=86_400
    )
    retry: HttpRetry = part(HttpRetry, "further tries within the step, and within its `timeout_seconds`")
    follow_redirects: int = key(
        0,
        "how many redirects in a row are followed; 0 = a redirect is a response like others",
        3,
        ge=0,
        le=MAX_REDIRECTS,
    )
    result: Literal["none", "body"] = key(
        "none", "`body`: the response must be JSON of at most 32 KiB, which becomes the result of the run", "body"
    )

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Iterator[PydanticCustomError]:
        """A body where the method has none."""
        if given.get("body") is not None and given.get("method", "GET") in ("GET", "HEAD"):
            hint = "use method: POST, or take the body out"
            yield problem(f"a {given.get('method', 'GET')} request has no body", hint, below=".body")

    def to_spec(self) -> dict[str, Any]:
        """The JSON tree of the domain, without what is a default."""
        retry = compact(vars(self.retry), vars(HttpRetry()))
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        return compact({**vars(self), "retry": retry}, {**defaults, "retry": {}})
