"""Payload schemas fetch nothing, and their checks do not stall the event loop."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import jsonschema_rs
import pytest

from toban_coordinator.app.large_payload import SLOW_SECONDS, CheckPending, LargePayloads, with_large_checks
from toban_coordinator.app.payload_validator import PayloadValidator
from toban_domain.errors import ErrorCode, TobanError
from toban_domain.job import JobSpec, StepSpec
from toban_manifests import payload_schema
from toban_manifests.payload_schema import CHECKED_HERE, PayloadSchema

KEY = (1, 1)


def spec(schema: dict[str, Any]) -> JobSpec:
    return JobSpec(name="j", steps=(StepSpec(id="s", body={"argv": ["true"]}),), payload_schema=schema)


async def made(payloads: PayloadValidator, job: JobSpec, given: dict[str, Any]) -> str:
    async def make() -> str:
        return payloads.make(KEY, job, given)

    return await with_large_checks(make)


def doubling(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": defs | {f"d{levels}": {"type": "string"}}}


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """A web server on loopback, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "object"}')

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", paths
    server.shutdown()
    thread.join()
    server.server_close()


def refused_by_start(schema: dict[str, Any]) -> TobanError:
    with pytest.raises(TobanError) as caught:
        PayloadValidator().make(KEY, spec(schema), {"a": 1})
    return caught.value


def test_a_stored_schema_that_refers_to_an_address_is_refused_and_never_fetched(asked: Any) -> None:
    url, paths = asked
    for schema in (
        {"$ref": f"{url}/a"},
        {"$schema": f"{url}/meta", "properties": {"a": {"$dynamicRef": f"{url}/b"}}},
        {"$id": f"{url}/base", "$ref": "c.json"},
    ):
        error = refused_by_start(schema)
        assert error.code is ErrorCode.MANIFEST_INVALID
        assert "spec.payload_schema" in error.message and "refers to something outside" in error.message
        assert "$defs" in error.message, "the remedy"
    assert paths == []


def test_the_library_itself_fetches_nothing(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a reference that the check of this module would overlook."""
    url, paths = asked
    monkeypatch.setattr(payload_schema.SchemaCost, "_refuse", lambda *_: None)
    with pytest.raises(TobanError, match="nothing is fetched"):
        PayloadSchema({"$ref": f"{url}/a"})
    assert paths == []


def test_a_file_is_not_read(tmp_path: Any) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}', encoding="utf-8")
    assert "outside" in refused_by_start({"$ref": f"file://{tmp_path}/s.json"}).message


def test_references_within_the_schema_work() -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    assert PayloadValidator().make(KEY, spec(schema), {"a": 1}) == '{"a":1}'
    with pytest.raises(TobanError, match=r"payload\.a"):
        PayloadValidator().make(KEY, spec(schema), {"a": "x"})


def test_patterns_with_look_ahead_are_refused() -> None:
    """They backtrack: 30 characters can take a second."""
    assert "spec.payload_schema" in refused_by_start({"properties": {"a": {"pattern": r"(?=(a+))\1+b"}}}).message


class Counting:
    """Stands in for the library, and counts the errors that it is asked for."""

    def __init__(self, real: jsonschema_rs.Draft202012Validator) -> None:
        self.real = real
        self.listed = 0

    def is_valid(self, payload: Any) -> bool:
        return self.real.is_valid(payload)

    def validate(self, payload: Any) -> None:
        self.real.validate(payload)

    def iter_errors(self, payload: Any) -> Any:
        for error in self.real.iter_errors(payload):
            self.listed += 1
            yield error


async def test_a_payload_with_400_000_mistakes_is_answered_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = PayloadSchema({"properties": {"a": {"allOf": [{"items": {"type": "string"}}] * 200}}})
    counting = Counting(schema._validator)
    monkeypatch.setattr(schema, "_validator", counting)
    payloads = PayloadValidator()
    payloads._schemas[KEY] = schema
    with pytest.raises(TobanError) as caught:
        await made(payloads, spec({}), {"a": [1] * 2000})
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID
    assert caught.value.message.startswith('payload.a[0]: 1 is not of type "string"')
    assert len(caught.value.detail["errors"]) == 1
    assert counting.listed == 0


def test_of_few_mistakes_all_are_listed() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    with pytest.raises(TobanError, match="and 1 more") as caught:
        PayloadValidator().make(KEY, spec(schema), {"a": 1, "b": 2})
    assert [error["path"] for error in caught.value.detail["errors"]] == ["payload.a", "payload.b"]


async def test_a_check_without_end_is_ended_and_the_loop_goes_on() -> None:
    """In this process it would hold the interpreter's lock: nothing else could run until it ends."""
    payloads = PayloadValidator(LargePayloads(limit_seconds=1, wait_seconds=60))
    job = spec(doubling(40))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    with pytest.raises(CheckPending):
        payloads.make(KEY, job, {"a": 1})
    task = asyncio.create_task(others())
    with pytest.raises(TobanError, match="takes more than 1 s of CPU time; simplify the schema") as caught:
        await made(payloads, job, {"a": 1})
    task.cancel()
    assert caught.value.code is ErrorCode.PAYLOAD_INVALID and turns > 0
    with pytest.raises(TobanError, match="takes more than 1 s of CPU time"):
        payloads.make(KEY, job, {"a": 2})


LARGE = {"properties": {"a": {"allOf": [{"items": {"type": "integer"}}] * 400}}}
MANY = {"a": list(range(3000))}


async def test_a_machine_that_is_too_busy_says_nothing_of_the_payload(fake_clock: Any) -> None:
    large = LargePayloads(limit_seconds=60, wait_seconds=0, clock=fake_clock)
    payloads = PayloadValidator(large)
    with pytest.raises(TobanError, match="this machine is too busy; try again") as caught:
        await made(payloads, spec(LARGE), MANY)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    large._wait_seconds = 60.0
    with pytest.raises(TobanError, match="this machine is too busy"):
        await made(payloads, spec(LARGE), MANY)
    await fake_clock.advance(SLOW_SECONDS + 1)
    assert (await made(payloads, spec(LARGE), MANY)).startswith('{"a":[0,1,')


async def test_a_large_payload_that_fits_is_checked_apart() -> None:
    schema, given = LARGE, MANY
    compiled = PayloadSchema(schema)
    assert compiled.steps(given, 14_000) > CHECKED_HERE
    payloads = PayloadValidator(LargePayloads(limit_seconds=60))
    assert (await made(payloads, spec(schema), given)).startswith('{"a":[0,1,')
