"""Errors of the API, which no message has."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from toban_admin_web.decide.answer import Answer


class Problem(Answer):
    """An error (RFC 9457)."""

    type: str = Field(description="urn:toban:error: and the code.")
    title: str
    status: int
    detail: str = Field(description="What is wrong, where, and the remedy.")
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="A stable code: docs/errors.md, and those of HTTP in docs/rest.md.")
    request_id: str = Field(description="Also in the header X-Request-Id and in the log of the site.")
    errors: list[Mistake] = Field(description="One for each mistake of an invalid request.")
    context: dict[str, Any] = Field(description="Further facts, by code.")


class Mistake(Answer):
    """One mistake in a request."""

    where: str
    message: str
