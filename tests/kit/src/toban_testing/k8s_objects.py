"""Accessors for rendered Kubernetes objects."""

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """(component, pod spec) of every object with a pod template."""
    for found in objects:
        if "template" in found.get("spec", {}):
            template = found["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


def containers(pod: Object) -> list[Object]:
    """The init containers, then the others."""
    return [*pod.get("initContainers", []), *pod["containers"]]
