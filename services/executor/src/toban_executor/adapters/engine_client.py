"""The API of Docker, or of Podman's service, on its Unix socket: as little of it as container steps need."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from toban_executor.adapters.step_program import error_text

LABEL = "dev.toban.incarnation"
_SECONDS = 30.0
_FRAME = struct.Struct(">BxxxI")
_READ = 65536


class EngineError(Exception):
    """The engine refused or did not respond; the text has its own message."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Stream(NamedTuple):
    """A response that goes on for as long as its container."""

    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection


class Engine:
    """`path` is the socket. Every method raises EngineError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def info(self) -> Mapping[str, Any]:
        """What the engine says of itself."""
        found: Mapping[str, Any] = self._ask("GET", "/info")
        return found

    def create(self, name: str, body: Mapping[str, Any]) -> str:
        """The id of a new container."""
        found = self._ask("POST", f"/containers/create?{urlencode({'name': name})}", body)
        return str(found["Id"])

    def attach(self, container: str) -> Stream:
        """Its output, from its start: read it with `frames`."""
        return self._open("POST", f"/containers/{container}/attach?stream=1&stdout=1&stderr=1", seconds=None)

    def wait(self, container: str) -> Stream:
        """Its end, once it is removed: read it with `exit_code`. The engine has begun to wait when this returns."""
        return self._open("POST", f"/containers/{container}/wait?condition=removed", seconds=None)

    def start(self, container: str) -> None:
        """Start it."""
        self._ask("POST", f"/containers/{container}/start")

    def signal(self, container: str, name: str) -> None:
        """Send a signal to its first process."""
        self._ask("POST", f"/containers/{container}/kill?signal={name}")

    def pid(self, container: str) -> int:
        """Its first process; 0 when it does not run, or is gone."""
        try:
            state = self._ask("GET", f"/containers/{container}/json")["State"]
            return int(state["Pid"]) if state["Running"] else 0
        except EngineError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return 0
            raise

    def remove(self, container: str) -> None:
        """Kill and remove it; one that is gone, or is being removed, is no error."""
        try:
            self._ask("DELETE", f"/containers/{container}?force=1&v=1")
        except EngineError as error:
            if error.status not in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT):
                raise

    def of_label(self, label: str) -> list[tuple[str, str]]:
        """Ids of containers with this label, each with its value."""
        filters = quote(json.dumps({"label": [label]}))
        found = self._ask("GET", f"/containers/json?all=1&filters={filters}")
        return [(one["Id"], one["Labels"].get(label, "")) for one in found]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        response, connection = self._open(method, path, body)
        try:
            text = response.read()
            return json.loads(text) if text.strip() else None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise EngineError(f"the engine's response to {path.partition('?')[0]} cannot be read: {error}") from None
        finally:
            response.close()
            connection.close()

    def _open(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, seconds: float | None = _SECONDS
    ) -> Stream:
        connection = _Connection(self._path, _SECONDS)
        text = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
            sock = connection.sock
            response = connection.getresponse()
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise EngineError(error_text(response, "the engine"), response.status)
            sock.settimeout(seconds)
            return Stream(response, connection)
        except EngineError:
            connection.close()
            raise
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise EngineError(f"the engine does not respond at {self._path}: {error}") from None


def frames(stream: Stream) -> Iterator[tuple[int, bytes]]:
    """The output of a container without a terminal: pieces of stdout (1) and stderr (2), until it ends. Raises EngineError."""
    try:
        while len(head := stream.response.read(_FRAME.size)) == _FRAME.size:
            number, length = _FRAME.unpack(head)
            while length and (data := stream.response.read(min(length, _READ))):
                length -= len(data)
                yield number, data
    except (OSError, http.client.HTTPException) as error:
        raise EngineError(f"the output of the container ended: {error}") from None


def exit_code(ended: Stream) -> int:
    """Of a container that is removed. Raises EngineError."""
    try:
        body = json.loads(ended.response.read())
        if body.get("Error"):
            raise EngineError(str(body["Error"].get("Message", body["Error"])))
        return int(body["StatusCode"])
    except (OSError, ValueError, LookupError, http.client.HTTPException) as error:
        raise EngineError(f"the end of the container is not known: {error}") from None
