"""What stands in rendered objects of Kubernetes."""

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """(component, pod) of everything that makes pods."""
    for found in objects:
        if "template" in found.get("spec", {}):
            template = found["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


def containers(pod: Object) -> list[Object]:
    """Those that run once, then those that stay."""
    return [*pod.get("initContainers", []), *pod["containers"]]
