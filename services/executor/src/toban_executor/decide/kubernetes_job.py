"""A `kubernetes` step as its cluster gets it: the Job, its name, its labels, its deadline, and what the executor allows."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toban_domain.outcome import AttemptKey

VARIABLE = "SCHEDULER_KUBERNETES_"
CONTAINER = "step"
"""Name of the container in the pod."""
OWNER, RUN, TOKEN = "toban.dev/owner", "toban.dev/run", "toban.dev/token"
ATTEMPT, STEP, INCARNATION = "toban.dev/attempt", "toban.dev/step", "toban.dev/incarnation"
TTL_SECONDS = 3600
"""How long a Job that nothing has removed is there after its end."""
MAX_GRACE_SECONDS = 3600
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class NotAllowedError(Exception):
    """The executor's configuration does not allow the step; the text names the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What steps may use. `images` are names in which * stands for any text; the first of `namespaces` is the default."""

    owner: str
    namespaces: tuple[str, ...]
    images: tuple[str, ...]
    service_accounts: tuple[str, ...]

    def namespace(self, step: Mapping[str, Any]) -> str:
        """The namespace of the step. Raises NotAllowedError, also for its image and its service account."""
        namespace = step.get("namespace") or self.namespaces[0]
        account = step.get("service_account", "")
        if namespace not in self.namespaces:
            raise NotAllowedError(f"namespace {namespace!r} is not allowed: see {VARIABLE}NAMESPACES of this executor")
        if not any(_fits(pattern, step["image"]) for pattern in self.images):
            raise NotAllowedError(f"image {step['image']!r} is not allowed: see {VARIABLE}IMAGES of this executor")
        if account and account not in self.service_accounts:
            raise NotAllowedError(
                f"service account {account!r} is not allowed: see {VARIABLE}SERVICE_ACCOUNTS of this executor"
            )
        return namespace


def parse_access(*, owner: str, namespaces: str, images: str, service_accounts: str) -> Access:
    """From settings, each a list with commas. Raises ValueError that names the wrong one."""
    found = Access(
        owner=owner,
        namespaces=_entries(namespaces),
        images=_entries(images),
        service_accounts=_entries(service_accounts),
    )
    for name in (owner, *found.namespaces):
        if not _NAME.fullmatch(name):
            which = "OWNER" if name == owner else "NAMESPACES"
            raise ValueError(f"{VARIABLE}{which}: {name!r} is no name in Kubernetes; use at most 63 of a-z 0-9 -")
    for entries, which, example in (
        (found.namespaces, "NAMESPACES", "batch"),
        (found.images, "IMAGES", "registry.example.com/team/*"),
    ):
        if not entries:
            raise ValueError(f"{VARIABLE}{which} is empty; write such as {example}")
    return found


def _entries(text: str) -> tuple[str, ...]:
    return tuple(entry for part in text.split(",") if (entry := part.strip()))


def _fits(pattern: str, image: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), image) is not None


def labels(*, owner: str, key: AttemptKey, attempt: int, step: int, incarnation: str) -> dict[str, str]:
    """Whose Job it is; `step` is its index. Pods have them too."""
    return {
        "app.kubernetes.io/managed-by": "toban",
        OWNER: owner,
        RUN: str(key.run_id),
        ATTEMPT: str(attempt),
        TOKEN: str(key.token),
        STEP: str(step + 1),
        INCARNATION: incarnation,
    }


def job_name(given: Mapping[str, str]) -> str:
    """The name that these labels always give. A token is given once, so another dispatch has another name."""
    digest = hashlib.sha256("\0".join(given[key] for key in (OWNER, TOKEN, STEP)).encode()).hexdigest()
    return f"toban-{given[RUN]}-{given[ATTEMPT]}-{digest[:12]}"


def is_earlier(found: Mapping[str, str], token: int) -> bool:
    """Whether the labels are those of an earlier attempt of a run than that of `token`."""
    text = found.get(TOKEN, "")
    return text.isdigit() and int(text) < token


def selector(**wanted: str | Sequence[str]) -> str:
    """A selector for labels: `owner="a"` stands for toban.dev/owner=a, several values for any of them."""
    return ",".join(
        f"toban.dev/{name}={value}" if isinstance(value, str) else f"toban.dev/{name} in ({','.join(value)})"
        for name, value in wanted.items()
    )


def deadline_seconds(*, started: float, now: float, lease_until: float | None, margin: float) -> int:
    """activeDeadlineSeconds with which a Job ends at most `margin` seconds after the lease. All on one clock, in seconds.

    `started`: when its start was seen, which is never before it was. `lease_until` None: it goes on without a lease.
    """
    until = now if lease_until is None else lease_until
    return max(1, math.floor(until - started + margin))


def should_extend(current: int, wanted: int, margin: float) -> bool:
    """Whether the deadline is to be moved: not for each heartbeat, and long before it comes."""
    return wanted - current >= margin / 3


def manifest(given: Mapping[str, Any], *, own: Mapping[str, str], deadline: int) -> dict[str, Any]:
    """The Job. `own` are Toban's variables."""
    step = given["kubernetes"]
    variables = {**given["env"], **step.get("env", {}), **own}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": step["image"],
        "args": [_literal(word) for word in step.get("argv", ())],
        "env": [{"name": name, "value": _literal(value)} for name, value in variables.items()],
        "workingDir": step.get("working_dir"),
        "resources": {name: _amounts(step[name]) for name in ("requests", "limits") if step.get(name)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    account = step.get("service_account", "")
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": account or None,
        "automountServiceAccountToken": bool(account),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": max(1, min(MAX_GRACE_SECONDS, math.ceil(given["grace_seconds"]))),
        "nodeSelector": step.get("node_selector"),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}, **_user(step.get("user", ""))},
        "containers": [_filled(container)],
    }
    about = {"toban.dev/job": given["job_name"], "toban.dev/step-id": given["step_id"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": given["name"], "labels": given["labels"], "annotations": about},
        "spec": {
            "backoffLimit": 0,
            "parallelism": 1,
            "completions": 1,
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": TTL_SECONDS,
            "template": {"metadata": {"labels": given["labels"], "annotations": about}, "spec": _filled(pod)},
        },
    }


def _literal(text: str) -> str:
    """Kubernetes puts variables into $(NAME), and makes $$ one."""
    return text.replace("$", "$$")


def _amounts(amounts: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    if cpus := amounts.get("cpus"):
        found["cpu"] = f"{max(1, round(cpus * 1000))}m"
    if memory := amounts.get("memory_mb"):
        found["memory"] = f"{memory}Mi"
    return found


def _user(user: str) -> dict[str, Any]:
    if not user:
        return {}
    uid, _, gid = user.partition(":")
    group = {"runAsGroup": int(gid)} if gid else {}
    return {"runAsUser": int(uid), **group, "runAsNonRoot": int(uid) != 0}


def _filled(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if value not in (None, [], {})}
