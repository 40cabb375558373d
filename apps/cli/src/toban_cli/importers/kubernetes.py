"""CronJobs of Kubernetes to jobs with a kubernetes step, and schedules."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from toban_cli.importers.cron_text import read_cron
from toban_cli.importers.crontab.schedule_rule import TimingError
from toban_cli.importers.names import Names
from toban_cli.importers.result import Draft, Entry, Imported, Options, Place, entry_of, lost
from toban_schedule.spec import ScheduleError
from toban_schedule.zones import load_zone

_FOR_ALL = (
    "runs need an executor with SCHEDULER_KUBERNETES_API, which allows the image, the namespace and the service account",
    'suspend the CronJob before you apply, otherwise both start the work: kubectl patch cronjob NAME -p \'{"spec":{"suspend":true}}\'',
    "Kubernetes starts the latest of the times that it missed; carried over as catch_up: one",
)
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti|)")
_FACTORS = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_POLICIES = {"Allow": "allow", "Forbid": "forbid", "Replace": "replace"}
_DEFAULT_RETRIES = 6
_MAX_RETRIES = 1000
_DEFAULT_GRACE = 30
# Parts of a pod without which its program may not do its work.
_NEEDED = ("volumes", "initContainers", "hostNetwork", "hostPID", "hostAliases", "runtimeClassName", "resourceClaims")
_NEEDED_OF_CONTAINER = ("volumeMounts", "volumeDevices", "envFrom")
# Without an effect on a run of Toban.
_PLAIN = frozenset(
    """successfulJobsHistoryLimit failedJobsHistoryLimit ttlSecondsAfterFinished restartPolicy dnsPolicy schedulerName name imagePullPolicy
    terminationMessagePath terminationMessagePolicy serviceAccount enableServiceLinks stdin tty completionMode manualSelector""".split()  # noqa: SIM905
)


def convert(documents: Iterable[tuple[str, str, Any]], options: Options) -> Imported:
    """An entry for each document; each is given with its place in its file ("2") and its file."""
    names = Names(options.prefix)
    entries = [entry for key, source, body in documents for entry in _document(key, source, body, options, names)]
    return Imported(entries=entries, for_all=[*_FOR_ALL, options.zone_note], counted=("CronJob", "CronJobs"))


def _document(key: str, source: str, body: Any, options: Options, names: Names) -> list[Entry]:
    kind, name = (body.get("kind"), _at(body, "metadata").get("name")) if isinstance(body, Mapping) else ("", "")
    place = Place("document", key, source, f"{kind or 'of no kind'} {name or ''}".strip())
    if kind == "List" and isinstance(body.get("items"), list):
        return [
            one
            for number, item in enumerate(body["items"], 1)
            for one in _document(f"{key}.{number}", source, item, options, names)
        ]
    if kind != "CronJob":
        return [lost("only a CronJob becomes a job", place, is_job=False)]
    if not isinstance(name, str) or body.get("apiVersion") not in ("batch/v1", "batch/v1beta1"):
        return [lost("it needs apiVersion: batch/v1 and a metadata.name", place)]
    draft = Draft(name=names.name(name, f"{source}\0{key}"), job={})
    try:
        _cron_job(body, draft, options)
    except (TimingError, _Unusable) as error:
        return [lost(str(error), place)]
    return [entry_of(draft, place, options.origin_of("kubernetes", source))]


class _Unusable(ValueError):
    """No job can be made: why."""


def _cron_job(body: Mapping[str, Any], draft: Draft, options: Options) -> None:
    metadata, spec = _at(body, "metadata"), _at(body, "spec")
    job = _at(_at(spec, "jobTemplate"), "spec")
    pod = _at(_at(job, "template"), "spec")
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], Mapping):
        raise _Unusable("its pod has no containers")
    if len(containers) > 1:
        names = ", ".join(str(_text(item, "name")) for item in containers if isinstance(item, Mapping))
        raise _Unusable(
            f"its pod has {len(containers)} containers ({names}), and a step has one: write a job for each, or leave out sidecars"
        )
    for key in ("parallelism", "completions"):
        if job.get(key) not in (None, 1):
            raise _Unusable(f"{key}: {job[key]} starts several pods, and a step has one; start several runs")
    draft.labels = {name: str(value) for name, value in _at(metadata, "labels").items()}
    step, env = _container(containers[0], draft)
    _pod(pod, step, draft)
    if namespace := _text(metadata, "namespace"):
        step["namespace"] = namespace
    draft.job["steps"] = [{"id": "pod", "type": "kubernetes", "kubernetes": step}]
    if env:
        step["env"] = env
    _job(job, pod, draft)
    _schedule(spec, draft, options)
    known = {"schedule", "timeZone", "suspend", "concurrencyPolicy", "startingDeadlineSeconds", "jobTemplate"}
    _rest("spec", spec, known, draft)


def _container(container: Mapping[str, Any], draft: Draft) -> tuple[dict[str, Any], dict[str, str]]:
    step: dict[str, Any] = {"image": _text(container, "image")}
    env = _env(container, draft)
    command, args = ([_filled(str(word), env) for word in _list(container, key)] for key in ("command", "args"))
    if command or args:
        step["argv"] = [*command, *args]
    if command:
        draft.notes.append(
            "command: replaces the entry point of the image in Kubernetes; here argv goes to the entry point. That is the same for images"
            " without one (busybox, python, debian); otherwise remove the entry point from the image"
        )
    if folder := _text(container, "workingDir"):
        step["working_dir"] = folder
    _user(_at(container, "securityContext"), step, draft)
    for key in ("requests", "limits"):
        if amounts := _amounts(key, _at(_at(container, "resources"), key), draft):
            step[key] = amounts
    draft.missing += [
        f"{key} of the container: {_names(container[key])}" for key in _NEEDED_OF_CONTAINER if container.get(key)
    ]
    known = {"image", "command", "args", "env", "workingDir", "resources", "securityContext", *_NEEDED_OF_CONTAINER}
    _rest("container", container, known, draft)
    return step, env


def _env(container: Mapping[str, Any], draft: Draft) -> dict[str, str]:
    env: dict[str, str] = {}
    for item in _list(container, "env"):
        name = _text(item, "name") if isinstance(item, Mapping) else ""
        if not name:
            draft.notes.append("a variable without a name is left out")
        elif "valueFrom" in item:
            origin = next(iter(_at(item, "valueFrom")), "valueFrom")
            draft.missing.append(
                f"env {name} comes from {origin}: write its value, or let the program read the secret itself"
            )
        else:
            env[name] = _filled(str(item.get("value", "")), env)
    return env


def _filled(text: str, env: Mapping[str, str]) -> str:
    """$(NAME) as Kubernetes replaces it: by variables that are known, $$ is $, and the rest stays."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


def _user(context: Mapping[str, Any], step: dict[str, Any], draft: Draft) -> None:
    if "runAsUser" in context:
        group = f":{context['runAsGroup']}" if "runAsGroup" in context else ""
        step["user"] = f"{context['runAsUser']}{group}"
    # What a step has in any case.
    plain = {"runAsUser", "runAsGroup", "runAsNonRoot", "allowPrivilegeEscalation", "seccompProfile"}
    _rest("securityContext", {key: value for key, value in context.items() if value is not False}, plain, draft)


def _amounts(key: str, amounts: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in amounts.items():
        number = _quantity(value)
        if name == "cpu" and number is not None:
            made["cpus"] = number
        elif name == "memory" and number is not None:
            made["memory_mb"] = max(1, math.ceil(number / 2**20))
            if number % 2**20:
                draft.notes.append(f"{key}.memory {value} is {made['memory_mb']} MiB here, rounded up")
        else:
            draft.missing.append(f"{key}.{name}: {value}, a step has only cpu and memory")
    return made


def _quantity(value: Any) -> float | None:
    found = _QUANTITY.fullmatch(str(value))
    return None if found is None else round(float(found[1]) * _FACTORS[found[2]], 6)


def _pod(pod: Mapping[str, Any], step: dict[str, Any], draft: Draft) -> None:
    if account := _text(pod, "serviceAccountName") or _text(pod, "serviceAccount"):
        step["service_account"] = account
    if selector := _at(pod, "nodeSelector"):
        step["node_selector"] = dict(selector)
    context = _at(pod, "securityContext")
    if "user" in step:
        context = {key: value for key, value in context.items() if key not in ("runAsUser", "runAsGroup")}
    _user(context, step, draft)
    draft.missing += [f"{key} of the pod: {_names(pod[key])}" for key in _NEEDED if pod.get(key)]
    known = {
        "containers",
        "serviceAccountName",
        "nodeSelector",
        "securityContext",
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
        *_NEEDED,
    }
    _rest("pod", pod, known, draft)


def _job(job: Mapping[str, Any], pod: Mapping[str, Any], draft: Draft) -> None:
    limits = [seconds for item in (job, pod) if (seconds := _whole(item, "activeDeadlineSeconds"))]
    if limits:
        draft.job["timeout_seconds"] = min(limits)
        draft.notes.append("activeDeadlineSeconds bounds all tries together; timeout_seconds bounds each")
    draft.job["cancel"] = {"grace_seconds": _whole(pod, "terminationGracePeriodSeconds", _DEFAULT_GRACE)}
    if retries := min(_whole(job, "backoffLimit", _DEFAULT_RETRIES), _MAX_RETRIES):
        backoff = {"initial": 10, "multiplier": 2, "max": 360}
        draft.job["retry"] = {"max_retries": retries, "backoff_seconds": backoff}
        if "backoffLimit" not in job:
            draft.notes.append(f"no backoffLimit: {retries} retries, the default of Kubernetes")
    known = {"activeDeadlineSeconds", "backoffLimit", "template", "parallelism", "completions"}
    _rest("jobTemplate.spec", job, known, draft)


def _schedule(spec: Mapping[str, Any], draft: Draft, options: Options) -> None:
    policy = _text(spec, "concurrencyPolicy") or "Allow"
    if policy not in _POLICIES:
        raise _Unusable(f"concurrencyPolicy: {policy} is not one of {', '.join(_POLICIES)}")
    draft.job["concurrency"] = {"policy": _POLICIES[policy]}
    zone = _text(spec, "timeZone") or options.timezone
    text = _text(spec, "schedule").strip()
    if found := re.match(r"(?:CRON_)?TZ=(\S+)\s+(.*)", text):
        zone, text = found[1], found[2]
    try:
        load_zone(zone)
    except ScheduleError as error:
        raise _Unusable(f"there is no zone {zone!r} ({error.hint})") from None
    rule, notes, names_hours = read_cron(text)
    draft.notes += notes
    schedule: dict[str, Any] = dict(rule)
    if "cron" in rule and zone != "UTC":
        schedule["timezone"] = zone
        if names_hours:
            # Kubernetes leaves out a local time that does not exist.
            schedule["dst"] = {"gap": "skip"}
    schedule["catch_up"] = "one"
    if spec.get("suspend") is True:
        schedule["enabled"] = False
    draft.schedules.append(schedule)
    if deadline := _whole(spec, "startingDeadlineSeconds"):
        draft.job["skip_late_after_seconds"] = deadline


def _rest(what: str, values: Mapping[str, Any], known: Iterable[str], draft: Draft) -> None:
    """A note about the keys that nothing has read."""
    left = [
        key
        for key, value in values.items()
        if key not in known and key not in _PLAIN and value not in (None, {}, [], "")
    ]
    if left:
        draft.notes.append(f"NOT carried over of {what}: {', '.join(left)}")


def _names(value: Any) -> str:
    """The names of the items of a list: "data, cache"."""
    if not isinstance(value, list):
        return str(value)
    return ", ".join(str(item.get("name") or next(iter(item), "")) for item in value if isinstance(item, Mapping))


def _at(value: Any, key: str) -> Mapping[str, Any]:
    """The mapping at the key; an empty one where there is none."""
    inner = value.get(key) if isinstance(value, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""


def _list(values: Mapping[str, Any], key: str) -> list[Any]:
    """The list at the key; raises _Unusable for what is none."""
    value = values.get(key) or []
    if not isinstance(value, list):
        raise _Unusable(f"{key} of the container must be a list, is {value!r}")
    return value


def _whole(values: Mapping[str, Any], key: str, default: int = 0) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
