"""The API of Kubernetes, as little of it as kubernetes steps need: Jobs, their pods, and logs.

On the standard library, as the other programs of steps: the official client loads 60 MB of generated models for the eight requests here.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from toban_executor.adapters.step_program import error_text
from toban_executor.decide.kubernetes_job import TOKEN
from toban_executor.decide.kubernetes_status import is_finished, read_pod
from toban_runtime.http_connection import TlsContext, tls_context

SECONDS = 30.0
"""How long a request may take to be answered."""
WATCH_SECONDS = 50
"""After these the server ends a watch, which goes on from where it was."""
QUIET_SECONDS = 75.0
"""How long a stream may be silent until the connection counts as lost."""
_READ = 65536
_MAX_LINE = 8 << 20


# Refusals that end when rights, tokens, objects or load are as they should be again.
_PASSING = frozenset({401, 403, 408, 409, 410, 425, 429})


class ApiError(Exception):
    """The API refused or did not respond (`status` 0)."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_transient(self) -> bool:
        """The same request may succeed later."""
        return self.is_open or self.status == http.HTTPStatus.TOO_MANY_REQUESTS

    @property
    def is_final(self) -> bool:
        """The same request can never succeed: the API does not know it, or cannot read it."""
        return 400 <= self.status < http.HTTPStatus.INTERNAL_SERVER_ERROR and self.status not in _PASSING

    @property
    def is_open(self) -> bool:
        """It is not known whether the request was carried out, nor whether it will be."""
        return self.status == 0 or self.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR


class Cluster(NamedTuple):
    """Where the API is and how it is reached. The token is read for each request, since it is replaced from time to time."""

    url: str
    token_file: str
    ca_file: str


class Api:
    """Every method raises ApiError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._address = urlsplit(cluster.url)
        self._context: TlsContext | None = None

    def create_job(self, namespace: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """The new Job; an error with status 409 when the name is taken."""
        return self._ask("POST", _path("jobs", namespace), job)

    def job(self, namespace: str, name: str) -> dict[str, Any] | None:
        """None when there is none."""
        try:
            return self._ask("GET", f"{_path('jobs', namespace)}/{name}")
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return None
            raise

    def set_deadline(self, namespace: str, name: str, seconds: int) -> None:
        """Change activeDeadlineSeconds."""
        body = {"spec": {"activeDeadlineSeconds": seconds}}
        self._ask("PATCH", f"{_path('jobs', namespace)}/{name}", body, kind="application/merge-patch+json")

    def listed(self, kind: str, namespace: str, selector: str) -> tuple[list[dict[str, Any]], str]:
        """Objects with these labels, as the API's store has them now, and the version of the list."""
        found = self._ask("GET", f"{_path(kind, namespace)}?{urlencode({'labelSelector': selector})}")
        try:
            return found.get("items") or [], found["metadata"]["resourceVersion"]
        except (LookupError, TypeError, AttributeError):
            raise ApiError(f"the API's list of {kind} cannot be read") from None

    def delete_job(self, namespace: str, job: Mapping[str, Any], *, foreground: bool) -> None:
        """Begin to delete this Job, and no other of its name. `foreground`: it is there until its pods are gone."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if foreground else "Background",
            "preconditions": {"uid": job["metadata"]["uid"]},
        }
        try:
            self._ask("DELETE", f"{_path('jobs', namespace)}/{job['metadata']['name']}", body)
        except ApiError as error:
            if error.status not in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT):
                raise

    def watch(self, kind: str, namespace: str, selector: str, version: str) -> Iterator[dict[str, Any]]:
        """Events after `version`, until the server ends the stream. An error with status 410 when it does not have them any more."""
        query = {
            "watch": "1",
            "labelSelector": selector,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        for line in self.lines(f"{_path(kind, namespace)}?{urlencode(query)}"):
            try:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("message", "the watch failed"), event["object"].get("code", 0))
            except (ValueError, LookupError):
                raise ApiError("an event of the watch cannot be read") from None
            yield event

    def log(self, namespace: str, pod: str, container: str, since: str) -> Iterator[bytes]:
        """Lines with their times, from the second `since` on (empty = all), until the container has ended."""
        query = {"container": container, "follow": "true", "timestamps": "true"}
        if since:
            query["sinceTime"] = since
        return self.lines(f"{_path('pods', namespace)}/{pod}/log?{urlencode(query)}")

    def lines(self, path: str) -> Iterator[bytes]:
        """A response that goes on, line by line; a last line without its end belongs to a stream that ended in order."""
        response, connection = self._open("GET", path)
        try:
            assert connection.sock is not None
            connection.sock.settimeout(QUIET_SECONDS)
            rest = b""
            while data := response.read1(_READ):
                *whole, rest = (rest + data).split(b"\n")
                yield from whole
                if len(rest) > _MAX_LINE:
                    yield rest
                    rest = b""
            if rest:
                yield rest
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiError(f"the stream of the API ended early: {type(error).__name__}") from None
        finally:
            response.close()
            connection.close()

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> dict[str, Any]:
        response, connection = self._open(method, path, body, kind)
        try:
            found: dict[str, Any] = json.loads(response.read())
            return found
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiError(f"the API's response to {method} cannot be read: {error}") from None
        finally:
            response.close()
            connection.close()

    def _open(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "application/json"
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
        context, token = self._credentials()
        connection = http.client.HTTPSConnection(
            str(self._address.hostname), self._address.port or 443, timeout=SECONDS, context=context
        )
        try:
            headers = {"Accept": "application/json", "Authorization": f"Bearer {token}", "Connection": "close"}
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers | ({"Content-Type": kind} if text else {}))
            # Kept from here on: with `Connection: close` the connection forgets its socket.
            sock = connection.sock
            response = connection.getresponse()
            connection.sock = sock
        except (OSError, ValueError, http.client.HTTPException) as error:
            connection.close()
            raise ApiError(f"the API at {self._cluster.url} does not respond: {_why(error)}") from None
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            message = error_text(response, "the API")
            connection.close()
            raise ApiError(message, response.status)
        return response, connection

    def _credentials(self) -> tuple[TlsContext, str]:
        try:
            if self._context is None:
                self._context = tls_context(self._cluster.ca_file)
            return self._context, Path(self._cluster.token_file).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            files = f"{self._cluster.token_file} and {self._cluster.ca_file}"
            raise ApiError(f"token or authorities for the API ({files}) cannot be read: {_why(error)}") from None


class Left(NamedTuple):
    """What may still run: the token of its attempt, and its name for people."""

    token: str
    text: str


def watched(
    api: Api,
    kind: str,
    namespace: str,
    selector: str,
    *,
    retry: Callable[[ApiError], None],
    refused: Callable[[ApiError], None],
) -> Iterator[dict[str, dict[str, Any]]]:
    """Objects with these labels by name, at first and after each change. It lists again where the server has forgotten what the watch needs.

    `retry` is called, and waits, when a request failed, also a list that the cluster does not permit now; `refused`, and waits until they are
    listed again, when it does not permit the watch. Raises ApiError for a list that can never succeed.
    """
    while True:
        try:
            items, version = api.listed(kind, namespace, selector)
        except ApiError as error:
            if error.is_final:
                raise
            retry(error)
            continue
        known = {item["metadata"]["name"]: item for item in items}
        yield dict(known)
        try:
            yield from _changes(api, kind, namespace, selector, version, known=known, retry=retry)
        except ApiError as error:
            if error.status != http.HTTPStatus.GONE:
                refused(error)


def _changes(
    api: Api,
    kind: str,
    namespace: str,
    selector: str,
    version: str,
    *,
    known: dict[str, dict[str, Any]],
    retry: Callable[[ApiError], None],
) -> Iterator[dict[str, dict[str, Any]]]:
    """What is known after each change. Raises ApiError when the watch cannot go on."""
    while True:
        try:
            for event in api.watch(kind, namespace, selector, version):
                item = event["object"]
                version = item["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                if event["type"] == "DELETED":
                    known.pop(item["metadata"]["name"], None)
                else:
                    known[item["metadata"]["name"]] = item
                yield dict(known)
        except ApiError as error:
            if not error.is_transient:
                raise
            retry(error)


def remove_jobs(
    api: Api, namespaces: tuple[str, ...], selector: str, *, only: Callable[[Mapping[str, str]], bool] | None = None
) -> list[Left]:
    """Delete Jobs with these labels. What is left: Jobs that may still make a pod, and pods that may run; empty proves that nothing runs."""
    left = []
    for namespace in namespaces:
        for job in api.listed("jobs", namespace, selector)[0]:
            meta = job["metadata"]
            marks = meta.get("labels") or {}
            if only is None or only(marks):
                finished = is_finished(job)
                if "deletionTimestamp" not in meta:
                    api.delete_job(namespace, job, foreground=not finished)
                if not finished:
                    left.append(Left(marks.get(TOKEN, ""), f"Job {namespace}/{meta['name']}"))
        # After the Jobs: without them no pod comes.
        for item in api.listed("pods", namespace, selector)[0]:
            pod, marks = read_pod(item), item["metadata"].get("labels") or {}
            if not pod.is_over and (only is None or only(marks)):
                text = f"pod {namespace}/{pod.name}" + (f" on {pod.node}" if pod.node else "")
                left.append(Left(marks.get(TOKEN, ""), text))
    return left


def _path(kind: str, namespace: str) -> str:
    group = "/apis/batch/v1" if kind == "jobs" else "/api/v1"
    return f"{group}/namespaces/{namespace}/{kind}"


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
