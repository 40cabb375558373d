"""Definitions as people edit them: a manifest as YAML made of what is stored, the example of a new one, and the document that a text holds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus

from toban_admin_web.decide.json_fields import as_object
from toban_admin_web.decide.log_text import printable_json
from toban_domain.errors import ErrorCode, TobanError
from toban_manifests.yaml_text import dump_yaml, parse_yaml

API_VERSION = "toban/v1"
# Where an error of the text is: "manifest:3:5".
SOURCE = "manifest"
# Keys of a stored definition that a manifest has under `metadata`.
_METADATA = ("name", "description", "labels")
_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "Job": {"steps": [{"argv": ["echo", "hello"]}], "timeout_seconds": 600},
    "Schedule": {"job": "", "daily_at": "03:00", "timezone": "UTC"},
}


def stored_document(kind: str, spec: Any) -> dict[str, Any]:
    """The manifest of a stored definition; keys with their default are left out, as they are stored."""
    stored = as_object(spec)
    metadata = {key: stored[key] for key in _METADATA if key in stored}
    return _document(kind, metadata, {key: value for key, value in stored.items() if key not in _METADATA})


def stored_text(kind: str, spec: Any) -> str:
    """The same as YAML."""
    return yaml_of(stored_document(kind, spec))


def example_document(kind: str, job: str = "") -> dict[str, Any]:
    """A manifest to begin with; `job` is the one that a schedule starts."""
    spec = {**_EXAMPLES[kind], "job": job or "hello"} if kind == "Schedule" else dict(_EXAMPLES[kind])
    name = f"{job or 'hello'}-daily" if kind == "Schedule" else "hello"
    return _document(kind, {"name": name}, spec)


def yaml_of(document: Mapping[str, Any]) -> str:
    """A manifest as YAML."""
    return printable_json(dump_yaml(document))


def document_of(text: str, kind: str, name: str = "", *, warn: Callable[[str], None] | None = None) -> dict[str, Any]:
    """The one document in a text. With a name it must be of that definition: a page for one does not change another.

    `warn` is called with a line about each value that may be meant otherwise. Raises MANIFEST_INVALID, whose message names the line or the key,
    and the remedy.
    """
    found = parse_yaml(SOURCE, text.encode(), warn)
    if len(found) != 1:
        raise _wrong("", f"{len(found)} documents", "write one; `toban apply` takes several")
    body = found[0]
    if not isinstance(body, dict):
        raise _wrong("", "is not a mapping", "begin with `apiVersion:`, `kind:`, `metadata:` and `spec:`")
    if body.get("kind") != kind:
        raise _wrong("kind", "is another one than this page is for", f"write {kind}")
    metadata = body.get("metadata")
    if name and isinstance(metadata, dict) and metadata.get("name") != name:
        raise _wrong("metadata.name", "is another one than this page is for", f"write {name}, or make a new one")
    return body


def shown_text(document: Mapping[str, Any]) -> str:
    """A document as a stored one is shown, so that two can be compared by lines."""
    keys = ("apiVersion", "kind", "metadata", "spec")
    order = sorted(document, key=lambda key: (keys.index(key) if key in keys else len(keys), str(key)))
    whole = {key: document[key] for key in order}
    for part in ("metadata", "spec"):
        if isinstance(whole.get(part), dict):
            whole[part] = dict(sorted(whole[part].items(), key=lambda item: str(item[0])))
    return yaml_of(whole)


def text_digest(text: str) -> str:
    """What tells one text from another; line ends, which browsers change, do not count."""
    return hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()


def form_bytes(text: str) -> int:
    """The bytes of a text in a form that a browser sends: it escapes most characters, and ends lines with two."""
    return len(quote_plus("\r\n".join(text.split("\n"))))


def _document(kind: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": dict(metadata), "spec": dict(spec)}


def _wrong(path: str, message: str, hint: str) -> TobanError:
    where = f"{SOURCE}: {path}" if path else SOURCE
    return TobanError(ErrorCode.MANIFEST_INVALID, f"{where}: {message}; {hint}")
