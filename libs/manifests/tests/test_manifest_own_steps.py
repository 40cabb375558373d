"""Steps of the types http, container and kubernetes: mistakes are named with path, reason and remedy."""

from __future__ import annotations

from typing import Any

import pytest

from toban_manifests.read import Document, find_problems, read_manifests


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}


def http(**request: Any) -> dict[str, Any]:
    return job(steps=[{"type": "http", "http": {"url": "https://a.example", **request}}])


def container(**image: Any) -> dict[str, Any]:
    return job(steps=[{"type": "container", "container": {"image": "a:1", **image}}])


def kubernetes(**pod: Any) -> dict[str, Any]:
    return job(steps=[{"type": "kubernetes", "kubernetes": {"image": "a:1", **pod}}])


def test_what_is_a_default_is_not_stored() -> None:
    [manifest] = read_manifests(
        [Document("a", http(method="GET", retry={"attempts": 1}, headers={"A": "${{ payload.x }}\n"}))],
        check_rule=lambda rule: [],
    )
    [step] = manifest.spec.steps
    assert step.body["http"] == {"url": "https://a.example", "headers": {"A": "${{ payload.x }}\n"}}
    [manifest] = read_manifests(
        [Document("a", container(mounts=[{"source": "/a", "target": "/b"}], limits={"pids": 9}))],
        check_rule=lambda rule: [],
    )
    [step] = manifest.spec.steps
    assert step.body["container"] == {
        "image": "a:1",
        "mounts": [{"source": "/a", "target": "/b"}],
        "limits": {"pids": 9},
    }
    assert manifest.spec.selector.steps == "container"
    [manifest] = read_manifests(
        [Document("a", kubernetes(limits={"cpus": 0.5}, requests={}, start_timeout_seconds=600, user="5"))],
        check_rule=lambda rule: [],
    )
    [step] = manifest.spec.steps
    assert step.body["kubernetes"] == {"image": "a:1", "limits": {"cpus": 0.5}, "user": "5"}
    assert manifest.spec.selector.steps == "kubernetes"


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        (job(steps=[{"type": "http"}]), "spec.steps[0].http", "add `http: {url: https://…}`"),
        (job(steps=[{"argv": ["x"], "http": {}}]), "spec.steps[0].http", "belongs to `type: http`"),
        (http(url="a.example"), "spec.steps[0].http.url", "must begin with http:// or https://"),
        (http(url="https://u:p@a.example"), "spec.steps[0].http.url", "put them into a header"),
        (http(url="a${{ payload.x }}"), "spec.steps[0].http.url", "must begin with http:// or https://"),
        (http(body={}), "spec.steps[0].http.body", "a GET request has no body; use method: POST"),
        (http(method="POST", body=3), "spec.steps[0].http.body", "must be text, a mapping or a list"),
        (http(method="POST", body={"a": "x" * 40_000}), "spec.steps[0].http.body", "the limit is 32768"),
        (http(method="get"), "spec.steps[0].http.method", "did you mean 'GET'?"),
        (http(headers={"Host": "a"}), "spec.steps[0].http.headers.Host", "is set by the executor"),
        (http(headers={"A": "x", "a": "y"}), "spec.steps[0].http.headers.a", "is there twice"),
        (http(headers={"A": "x\ny"}), "spec.steps[0].http.headers.A", "without line breaks"),
        (http(headers={"A": 1}), "spec.steps[0].http.headers.A", 'put it into quotes: A: "1"'),
        (http(headers=["A"]), "spec.steps[0].http.headers", "must be a mapping"),
        (http(expected_status=[]), "spec.steps[0].http.expected_status", "must be a list of statuses"),
        (http(expected_status=["2xx"]), "spec.steps[0].http.expected_status[0]", "a range in quotes"),
        (http(retry={"backoff_seconds": [-1]}), "spec.steps[0].http.retry.backoff_seconds[0]", "use seconds from 0"),
        (http(retry={"attempts": 0}), "spec.steps[0].http.retry.attempts", "use 1 … 20"),
        (http(timeout=3), "spec.steps[0].http.timeout", "did you mean 'response_timeout_seconds'?"),
        (
            job(steps=[{"type": "http", "http": {"url": "https://a.example"}, "heartbeat_seconds": 3}]),
            "spec.steps[0].heartbeat_seconds",
            "gives signs of life, and not to http; use http.response_timeout_seconds",
        ),
        (job(steps=[{"type": "container"}]), "spec.steps[0].container", "add `container: {image: name:tag}`"),
        (container(image="A b"), "spec.steps[0].container.image", "is not the name of an image"),
        (container(argv="x"), "spec.steps[0].container.argv", "must be a list, is text"),
        (container(argv=[1]), "spec.steps[0].container.argv[0]", 'put it into quotes: "1"'),
        (container(mounts={}), "spec.steps[0].container.mounts", "must be a list, is an object"),
        (
            container(mounts=[{"source": "/a/../b", "target": "/c"}]),
            "spec.steps[0].container.mounts[0].source",
            "is not an absolute path without . and ..",
        ),
        (container(mounts=[{"source": "/a"}]), "spec.steps[0].container.mounts[0].target", "is missing"),
        (container(limits={"memory": 1}), "spec.steps[0].container.limits.memory", "did you mean 'memory_mb'?"),
        (container(network="host"), "spec.steps[0].container.network", "use one of none, bridge"),
        (
            job(steps=[{"type": "container", "container": {"image": "a"}}, {"argv": ["x"]}]),
            "spec.steps[1].type",
            "beside a container step",
        ),
        (
            job(
                steps=[
                    {"type": "container", "container": {"image": "a"}},
                    {"type": "django", "command": "x", "project": "/p", "interpreter": "/p/python"},
                ]
            ),
            "spec.steps[1].type",
            "is django, beside a container step",
        ),
        (
            job(steps=[{"type": "kubernetes"}]),
            "spec.steps[0].kubernetes",
            "add `kubernetes: {image: registry/name:tag}`",
        ),
        (kubernetes(image=""), "spec.steps[0].kubernetes.image", "add `image: name:tag`"),
        (kubernetes(namespace="Batch"), "spec.steps[0].kubernetes.namespace", "'Batch' is not a namespace"),
        (kubernetes(user="root"), "spec.steps[0].kubernetes.user", "write the numbers of user, or user:group"),
        (kubernetes(service_account="a_b"), "spec.steps[0].kubernetes.service_account", "name of a service account"),
        (kubernetes(node_selector={"a b": "c"}), "spec.steps[0].kubernetes.node_selector", "not the key of a label"),
        (kubernetes(node_selector={"a": 1}), "spec.steps[0].kubernetes.node_selector.a", "must be text"),
        (kubernetes(node_selector={"a": "x y"}), "spec.steps[0].kubernetes.node_selector.a", "not the value of a"),
        (
            kubernetes(node_selector={f"a{n}": "" for n in range(21)}),
            "spec.steps[0].kubernetes.node_selector",
            "has 21 labels; use at most 20",
        ),
        (
            kubernetes(requests={"cpus": 2}, limits={"cpus": 1}),
            "spec.steps[0].kubernetes.requests.cpus",
            "is above limits.cpus",
        ),
        (kubernetes(mounts=[]), "spec.steps[0].kubernetes.mounts", ""),
        (
            job(
                steps=[
                    {"type": "kubernetes", "kubernetes": {"image": "a"}},
                    {"type": "container", "container": {"image": "a"}},
                ]
            ),
            "spec.steps[1].type",
            "is container, beside a kubernetes step",
        ),
        (
            job(steps=[{"type": "http", "http": {"url": "https://a.example"}, "warm": True}]),
            "spec.steps[0].warm",
            "belongs to `type: python` or `type: django` and not to http",
        ),
    ],
)
def test_a_mistake_names_its_path_and_the_way_out(body: object, path: str, words: str) -> None:
    _, found = find_problems([Document("a.yaml", body)], check_rule=lambda rule: [])
    lines = {problem.path: problem.line() for problem in found}
    assert path in lines
    assert words in lines[path]
