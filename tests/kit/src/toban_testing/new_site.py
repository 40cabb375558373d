"""New sites for tests: most of the time that one takes to start is for templates and addresses, which are compiled once a process here."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket
from werkzeug.routing import Rule

from toban_admin_web.adapters import api_client, people_client
from toban_admin_web.config import AdminWebConfig
from toban_admin_web.main.worker import SiteWorker

# How long a site of a test waits for a cluster that is there: on a machine with other work, longer than production's waits.
PATIENT_SECONDS = 30.0
_PRODUCTION = [
    (module, name, getattr(module, name))
    for module, name in (
        (api_client, "ATTEMPT_SECONDS"),
        (people_client, "ATTEMPT_SECONDS"),
        (people_client, "CALL_SECONDS"),
    )
]
for _module, _name, _ in _PRODUCTION:
    setattr(_module, _name, PATIENT_SECONDS)


@pytest.fixture
def production_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Production's waits for one test, whose subject they are."""
    for module, name, value in _PRODUCTION:
        monkeypatch.setattr(module, name, value)


def new_site(config: AdminWebConfig) -> SiteWorker:
    """A site without a server; its application takes requests."""
    if Rule.compile is not _compile_once:
        Rule.compile = _compile_once  # type: ignore[method-assign, assignment]
    worker = SiteWorker(config=config, http_port=0, stopping=threading.Event())
    worker.app.jinja_env.bytecode_cache = _TEMPLATES
    return worker


_compile = Rule.compile
_RESULTS = ("_parts", "_trace", "_converters", "arguments", "_build", "_build_unknown")
_compiled: dict[tuple[object, ...], dict[str, Any]] = {}


def _compile_once(rule: Rule) -> None:
    """What reads and makes an address: it depends on nothing but the rule's text, defaults and map."""
    key = rule.rule, repr(rule.defaults), rule.subdomain, rule.host, rule.merge_slashes
    if key not in _compiled:
        _compile(rule)
        _compiled[key] = {name: getattr(rule, name) for name in _RESULTS}
    vars(rule).update(_compiled[key])


class _Templates(BytecodeCache):
    """Compiled templates, by their text."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[str, Any]] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        checksum, code = self._compiled.get(bucket.key, ("", None))
        if checksum == bucket.checksum:
            bucket.code = code

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._compiled[bucket.key] = bucket.checksum, bucket.code


_TEMPLATES = _Templates()
