"""Whose credential a request has, and the document that describes the API."""

from __future__ import annotations

from functools import cache

from flask import Response
from pydantic import Field

from toban_admin_web.decide.answer import Answer
from toban_admin_web.views.api import gate
from toban_admin_web.views.api.endpoint import Call, Endpoint
from toban_admin_web.views.api.openapi import as_text


class Session(Answer):
    """A person."""

    user: str
    role: str = Field(description="The highest of any rule of theirs, bounded by the token; empty without one.")
    worker_type: str = Field(
        description="Of a token with scope worker: the external steps that it is for; it does nothing else."
    )
    csrf_token: str = Field(
        description="With the cookie of a session: requests that change something carry it as X-CSRF-Token."
    )


def _session(call: Call) -> Answer:
    person = call.person
    return Session(user=person.user, role=person.role, worker_type=person.worker_type, csrf_token=gate.csrf_token())


def _openapi(_call: Call) -> Response:
    return Response(_document(), content_type="application/json")


@cache
def _document() -> str:
    from toban_admin_web.views.api.all_endpoints import ENDPOINTS as EVERY

    return as_text(EVERY)


ENDPOINTS = (
    Endpoint(route="GET /session", summary="Whose credential this is.", answer=Session, handle=_session),
    Endpoint(route="GET /openapi.json", summary="This document.", answer=None, handle=_openapi),
)
