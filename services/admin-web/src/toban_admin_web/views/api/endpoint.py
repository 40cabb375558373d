"""One route of the API as a value: what it takes, what it answers, and the call of a coordinator that it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Response
from pydantic import BaseModel

from toban_admin_web.decide.answer import Answer
from toban_admin_web.decide.api_methods import METHODS
from toban_admin_web.decide.api_rules import ROUTE_RULES
from toban_admin_web.decide.request_input import Input
from toban_admin_web.ports.api import Caller
from toban_admin_web.ports.people import SignedIn
from toban_domain.errors import ErrorCode, TobanError

A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that was admitted and whose input is valid."""

    endpoint: Endpoint
    path: Mapping[str, Any]
    query: Any
    body: Any
    key: str
    """Of the header Idempotency-Key; "" without it."""
    expected: int | None
    """The version of the header If-Match; 0 for `If-None-Match: *`; None without them."""
    person: SignedIn
    caller: Caller

    def condition_failed(self, error: TobanError) -> bool:
        """Whether this error means that the request's own condition (`expected`) did not hold."""
        return self.expected is not None and error.code in (ErrorCode.CONFLICT, ErrorCode.ALREADY_EXISTS)

    def fields(self) -> dict[str, Any]:
        """Query, body and path as fields of the method's request; what the path names stands."""
        parts = [part.request_fields() for part in (self.query, self.body) if part is not None]
        return {**{name: value for part in parts for name, value in part.items()}, **self.path}

    def ask(self, answer: type[A], fields: dict[str, Any]) -> A:
        """Calls the method of the route's rule."""
        call = self.caller.read if self.endpoint.verb == "GET" else self.caller.write
        return call(ROUTE_RULES[self.endpoint.route].method, answer, fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`route` is a key of ROUTE_RULES. Without `handle` the answer is that of the rule's method with path, query and body as its fields."""

    route: str
    summary: str
    answer: type[Answer] | None
    """None: `handle` makes the whole response, with one of `content_types`."""
    query: type[Input] | None = None
    body: type[Input] | None = None
    body_optional: bool = False
    status: int = 200
    handle: Callable[[Call], Answer | tuple[Answer, int] | Response] | None = None
    also: tuple[int, ...] = ()
    """Further statuses of success."""
    content_types: tuple[str, ...] = ("application/json",)
    idempotent: bool = False
    """It takes the header Idempotency-Key."""
    conditional: bool = False
    """It takes If-Match, and If-None-Match for objects that are made."""
    tagged: bool = False
    """Its answer has an ETag, its version."""

    @classmethod
    def of(cls, route: str, **changes: Any) -> Endpoint:
        """The endpoint of a method whose request and response are those of the route, with some attributes of its own.

        Raises KeyError for a route of no such method.
        """
        method = METHODS[ROUTE_RULES[route].method]
        model, verb = method.input, route.partition(" ")[0]
        attributes: dict[str, Any] = {"summary": method.summary, "answer": method.answer}
        if model is not None and verb in ("GET", "DELETE"):
            attributes["query"] = model
        elif model is not None:
            has_required = any(field.is_required() for field in model.model_fields.values())
            attributes |= {"body": model, "body_optional": verb == "POST" and not has_required}
        return cls(route=route, **{**attributes, **changes})

    @property
    def verb(self) -> str:
        """GET, POST ..."""
        return self.route.partition(" ")[0]

    @property
    def name(self) -> str:
        """Of the view and the operation: get_jobs_name."""
        return re.sub(r"[^a-z]+", "_", self.route.lower()).strip("_")

    @property
    def path(self) -> str:
        """Below PREFIX, with {parameters}."""
        return self.route.partition(" ")[2]

    def answer_to(self, call: Call) -> Any:
        """The answer, or what `handle` makes."""
        if self.handle is not None:
            return self.handle(call)
        assert self.answer is not None
        return call.ask(self.answer, call.fields())
