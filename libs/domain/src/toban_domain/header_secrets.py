"""Secrets in headers of `http` steps: `${{ secrets.NAME }}`. The executor puts the value in; nothing before it has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toban_domain import template

PREFIX = "secrets."
# In the request that an executor is given: headers whose texts have secrets, as a list of texts and of files in TOBAN_SECRETS_DIR.
SECRET_HEADERS = "secret_headers"


def secret_names(text: str) -> list[str]:
    """The secrets to which a text refers."""
    return [name.removeprefix(PREFIX) for name in template.references(text) if name.startswith(PREFIX)]


def split_headers(http: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """The request of a definition with its headers that have secrets apart: they are not filled in with anything else. `files` by the names of
    secrets. Raises LookupError for a secret that the job does not have."""
    headers = http.get("headers", {})
    secret = {name: _parts(text, files) for name, text in headers.items() if secret_names(text)}
    if not secret:
        return dict(http)
    return {**http, "headers": {k: v for k, v in headers.items() if k not in secret}, SECRET_HEADERS: secret}


def join_headers(http: Mapping[str, Any], values: Mapping[str, bytes]) -> dict[str, Any]:
    """The request with the values in its headers; `values` by file. A line ending behind a value is not part of it. Raises LookupError for a
    file that there is not, ValueError for what is not as `split_headers` writes it."""
    rest = {key: item for key, item in http.items() if key != SECRET_HEADERS}
    made = {
        name: "".join(part if isinstance(part, str) else _value(values[part["file"]]) for part in parts)
        for name, parts in http.get(SECRET_HEADERS, {}).items()
    }
    return {**rest, "headers": {**http.get("headers", {}), **made}} if made else rest


def _parts(text: str, files: Mapping[str, str]) -> list[Any]:
    found: list[Any] = []
    while (start := text.find(template.MARK)) >= 0:
        end = text.index("}}", start)
        name = text[start + len(template.MARK) : end].strip().removeprefix(PREFIX)
        found += [text[:start], {"file": files[name]}]
        text = text[end + 2 :]
    return [*found, text]


def _value(value: bytes) -> str:
    return value.rstrip(b"\r\n").decode("latin-1")
