"""What a step `type: kubernetes` runs: one pod of one Job in the cluster that its executor may use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from toban_domain.job import compact
from toban_domain.payload import kind_of
from toban_manifests.container_steps import Argv, Image
from toban_manifests.section import Section, key, part, problem
from toban_manifests.values import DAY, Env, Folder, Text

_MAX_NODE_LABELS = 20
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_LABEL_NAME}")
_LABEL_VALUE = re.compile(rf"({_LABEL_NAME})?")
_USER = re.compile(r"[0-9]{1,9}(:[0-9]{1,9})?")


def _matches(pattern: re.Pattern[str], what: str, hint: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value and not pattern.fullmatch(value):
            raise problem(f"{value!r} is not {what}", hint)
        return value

    return check


def _check_selector(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise problem(f"must be a mapping, is {kind_of(value)}", "write `node_selector: {kubernetes.io/arch: amd64}`")
    if len(value) > _MAX_NODE_LABELS:
        raise problem(f"has {len(value)} labels", f"use at most {_MAX_NODE_LABELS}")
    for name, item in value.items():
        if not isinstance(name, str) or not _LABEL_KEY.fullmatch(name):
            raise problem(f"{name!r} is not the key of a label in Kubernetes", "write such as kubernetes.io/arch")
        if not isinstance(item, str):
            raise problem(f"must be text, is {kind_of(item)}", f'put it into quotes: {name}: "…"', below=f".{name}")
        if not _LABEL_VALUE.fullmatch(item):
            hint = "use at most 63 of A-Z a-z 0-9 - _ ."
            raise problem(f"{item!r} is not the value of a label in Kubernetes", hint, below=f".{name}")
    return value


class Amounts(Section):
    """Processors and memory."""

    MEANT = {"memory": "memory_mb", "cpu": "cpus"}

    memory_mb: int = key(0, "MiB of memory; 0 = not given", 512, ge=0, le=16 << 20)
    cpus: float = key(0.0, "processors, 0.5 = half of one; 0 = not given", 1.5, type_name="number", ge=0, le=1024.0)


class Kubernetes(Section):
    """An image, and how its pod runs."""

    MEANT = {
        "command": "argv",
        "args": "argv",
        "environment": "env",
        "serviceAccountName": "service_account",
        "nodeSelector": "node_selector",
        "resources": "limits",
    }

    image: Image = key(
        ...,
        "SCHEDULER_KUBERNETES_IMAGES of the executor must allow it",
        "registry.example.com/team/report:1.4",
    )
    argv: Argv = key(
        [],
        "arguments for the entry point of the image. Those behind the first may have [templates](jobs.md#templates)",
        ["report", "--day", "today"],
        type_name="list of texts",
        unset="those of the image",
    )
    env: Env = key({}, "variables, over those of the job. Values may have templates", {"LANG": "C.UTF-8"})
    working_dir: Folder = key("", "folder in the container", "/data", type_name="folder", unset="that of the image")
    user: Annotated[
        Text,
        AfterValidator(_matches(_USER, "a user", "write the numbers of user, or user:group, such as 1000:1000")),
        WithJsonSchema({"type": "string", "pattern": f"^{_USER.pattern}$"}),
    ] = key("", "number of the user, or user:group, in the container", "1000:1000", unset="that of the image")
    namespace: Annotated[
        Text,
        AfterValidator(_matches(_DNS_LABEL, "a namespace", "use at most 63 of a-z 0-9 -")),
        WithJsonSchema({"type": "string", "pattern": f"^{_DNS_LABEL.pattern}$"}),
    ] = key(
        "",
        "where the Job is; SCHEDULER_KUBERNETES_NAMESPACES of the executor must have it",
        "batch",
        unset="the first one that the executor has",
    )
    service_account: Annotated[
        Text,
        AfterValidator(_matches(_DNS_NAME, "the name of a service account", "use a-z 0-9 - .")),
        WithJsonSchema({"type": "string", "maxLength": 253}),
    ] = key(
        "",
        "whose token the pod gets; SCHEDULER_KUBERNETES_SERVICE_ACCOUNTS of the executor must have it",
        "report",
        unset="no token",
    )
    node_selector: Annotated[
        dict[str, str],
        BeforeValidator(_check_selector),
        WithJsonSchema(
            {"type": "object", "maxProperties": _MAX_NODE_LABELS, "additionalProperties": {"type": "string"}}
        ),
    ] = key({}, f"labels that the node must have, at most {_MAX_NODE_LABELS}", {"kubernetes.io/arch": "amd64"})
    requests: Amounts = part(Amounts, "what its node must have free")
    limits: Amounts = part(Amounts, "what it may use; more memory ends it (OOMKilled)")
    start_timeout_seconds: int = key(
        600, "how long the pod may take until its container runs, images and a free node included", 120, ge=1, le=DAY
    )

    @classmethod
    def check_before(cls, given: dict[str, Any]) -> Any:
        """A request above its limit, which no cluster accepts."""
        requests, limits = given.get("requests"), given.get("limits")
        if isinstance(requests, Mapping) and isinstance(limits, Mapping):
            for name in ("memory_mb", "cpus"):
                asked, most = requests.get(name), limits.get(name)
                if isinstance(asked, int | float) and isinstance(most, int | float) and 0 < most < asked:
                    hint = f"request at most {most:g}, or raise limits.{name}"
                    yield problem(f"is above limits.{name}", hint, below=f".requests.{name}")

    def to_spec(self) -> dict[str, Any]:
        """The JSON tree of the domain, without what is a default."""
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        amounts = {name: compact(vars(getattr(self, name)), vars(Amounts())) for name in ("requests", "limits")}
        return compact({**vars(self), **amounts}, {**defaults, "requests": {}, "limits": {}})
