"""What works behind the fake API of Kubernetes: a store with versions, the job controller, the garbage collector and a node.

Containers are scripts of words, which are the arguments of the container: `say:TEXT`, `exit:N`, `oom`, `wait` (until `let_go`),
`deaf` (SIGTERM has no effect), `pulls:REASON` (waits for its image for ever).
"""

from __future__ import annotations

import copy
import threading
from typing import Any

from toban_runtime.clock import SystemClock

Object = dict[str, Any]
_clock = SystemClock()


class FakeCluster:
    """`changed` guards everything in it. Its attributes control what happens."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.objects: dict[str, dict[str, Object]] = {"jobs": {}, "pods": {}}
        self.logs: dict[str, list[str]] = {}
        # Version, kind, type, object.
        self.events: list[tuple[int, str, str, Object]] = []
        self.version = 100
        # Versions before this one are forgotten.
        self.oldest = 0
        self.made: list[Object] = []
        # Whether the job controller works.
        self.starting = True
        self.node_is_down = False
        self.stopped = False
        self._gone_on = False
        threading.Thread(target=self._enforce_deadlines, daemon=True).start()

    # ---- for tests

    def let_go(self) -> None:
        """Containers that wait go on."""
        with self.changed:
            self._gone_on = True
            self.changed.notify_all()

    def set_node(self, *, down: bool) -> None:
        """While it is down, pods that are to end do not."""
        with self.changed:
            self.node_is_down = down
            self.changed.notify_all()

    def end(self) -> None:
        """Nothing works any more."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def all(self, kind: str) -> list[Object]:
        """Objects as they are now."""
        with self.changed:
            return copy.deepcopy([*self.objects[kind].values()])

    def forget_events(self) -> None:
        """As after a compaction: a watch from before gets 410, and those that run end."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.changed.notify_all()

    # ---- the store

    def put(self, kind: str, item: Object, event: str) -> None:
        """Store a change and tell watches; call it with `changed` held."""
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        name = item["metadata"]["name"]
        if event == "DELETED":
            self.objects[kind].pop(name, None)
        else:
            self.objects[kind][name] = item
        self.events.append((self.version, kind, event, copy.deepcopy(item)))
        self.changed.notify_all()

    def create(self, job: Object) -> Object | None:
        """None when the name is taken."""
        with self.changed:
            meta = job["metadata"]
            if meta["name"] in self.objects["jobs"]:
                return None
            meta["uid"] = f"uid-{self.version}"
            self.made.append(copy.deepcopy(job))
            self.put("jobs", job, "ADDED")
            if self.starting:
                self.start(job)
            return copy.deepcopy(job)

    def start(self, job: Object) -> None:
        """What the job controller does."""
        with self.changed:
            job["status"] = {"startTime": stamp(), "started": _clock.monotonic()}
            self.put("jobs", job, "MODIFIED")
            template = copy.deepcopy(job["spec"]["template"])
            name = f"{job['metadata']['name']}-x"
            pod = {
                "metadata": {"name": name, "labels": template["metadata"]["labels"], "job": job["metadata"]["name"]},
                "spec": {**template["spec"], "nodeName": "node-1"},
                "status": {"phase": "Pending"},
            }
            self.logs[name] = []
            self.put("pods", pod, "ADDED")
        threading.Thread(target=self._run, args=(pod,), daemon=True).start()

    def patch(self, name: str, body: Object) -> int:
        """The status of the response. Only activeDeadlineSeconds is mutable here."""
        with self.changed:
            job = self.objects["jobs"].get(name)
            if job is None:
                return 404
            if set(body) != {"spec"} or set(body["spec"]) != {"activeDeadlineSeconds"}:
                return 422
            job["spec"] |= body["spec"]
            self.put("jobs", job, "MODIFIED")
            return 200

    def delete(self, name: str, options: Object) -> int:
        """The status of the response."""
        with self.changed:
            job = self.objects["jobs"].get(name)
            if job is None:
                return 404
            if options.get("preconditions", {}).get("uid") != job["metadata"]["uid"]:
                return 409
            job["metadata"]["deletionTimestamp"] = stamp()
            self.put("jobs", job, "MODIFIED")
            self._delete_pods(name)
            if options["propagationPolicy"] == "Background":
                self.put("jobs", job, "DELETED")
            else:
                self._collect(name)
            return 200

    def _delete_pods(self, job: str) -> None:
        for pod in list(self.objects["pods"].values()):
            if pod["metadata"]["job"] != job or "deletionTimestamp" in pod["metadata"]:
                continue
            pod["metadata"]["deletionTimestamp"] = stamp()
            self.put("pods", pod, "MODIFIED")
            if pod["status"]["phase"] in ("Succeeded", "Failed"):
                self._remove_pod(pod)

    def _remove_pod(self, pod: Object) -> None:
        self.put("pods", pod, "DELETED")
        self._collect(pod["metadata"]["job"])

    def _collect(self, name: str) -> None:
        job = self.objects["jobs"].get(name)
        left = any(pod["metadata"]["job"] == name for pod in self.objects["pods"].values())
        if job and "deletionTimestamp" in job["metadata"] and not left:
            self.put("jobs", job, "DELETED")

    def _enforce_deadlines(self) -> None:
        while not self.stopped:
            with self.changed:
                for job in list(self.objects["jobs"].values()):
                    status = job.get("status", {})
                    over = _clock.monotonic() - status.get("started", _clock.monotonic())
                    if over >= job["spec"]["activeDeadlineSeconds"] and not status.get("conditions"):
                        self._condition(
                            job, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
                        )
                        self._delete_pods(job["metadata"]["name"])
                self.changed.wait(0.05)

    def _condition(self, job: Object, kind: str, reason: str = "", message: str = "") -> None:
        job["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": message}]
        self.put("jobs", job, "MODIFIED")

    # ---- the node

    def _run(self, pod: Object) -> None:
        """The kubelet, for one pod."""
        words = list(pod["spec"]["containers"][0].get("args", ["exit:0"]))
        deaf = "deaf" in words
        state: Object = {"running": {"startedAt": stamp()}}
        if any(word.startswith("pulls:") for word in words):
            reason = next(word for word in words if word.startswith("pulls:"))[len("pulls:") :]
            self._status(pod, "Pending", {"waiting": {"reason": reason, "message": "no such image"}})
            self._wait_for_deletion(pod)
            with self.changed:
                self._remove_pod(pod)
            return
        self._status(pod, "Running", state)
        code, reason = self._carry_out(pod, words)
        if code is None:
            grace = pod["spec"]["terminationGracePeriodSeconds"] if deaf else 0
            code, reason = (137 if deaf else 143), "Error"
            with self.changed:
                self.changed.wait_for(lambda: self.stopped, grace)
                self.changed.wait_for(lambda: self.stopped or not self.node_is_down)
                self.logs[pod["metadata"]["name"]].append(f"{stamp(nano=True)} ended by a signal")
        self._finish(pod, code, reason)

    def _carry_out(self, pod: Object, words: list[str]) -> tuple[int | None, str]:
        for word in words:
            kind, _, value = word.partition(":")
            if kind == "say":
                with self.changed:
                    self.logs[pod["metadata"]["name"]] += [f"{stamp(nano=True)} {line}" for line in value.split("\n")]
                    self.changed.notify_all()
            elif kind == "exit":
                return int(value), "Error" if int(value) else "Completed"
            elif kind == "oom":
                return 137, "OOMKilled"
            elif kind == "wait" and self._wait_for_deletion(pod, or_go=True):
                return None, ""
        return 0, "Completed"

    def _wait_for_deletion(self, pod: Object, *, or_go: bool = False) -> bool:
        with self.changed:
            self.changed.wait_for(
                lambda: self.stopped or "deletionTimestamp" in pod["metadata"] or (or_go and self._gone_on)
            )
            return "deletionTimestamp" in pod["metadata"]

    def _status(self, pod: Object, phase: str, state: Object) -> None:
        with self.changed:
            pod["status"] = {"phase": phase, "containerStatuses": [{"name": "step", "state": state}]}
            self.put("pods", pod, "MODIFIED")

    def _finish(self, pod: Object, code: int, reason: str) -> None:
        with self.changed:
            self._status(pod, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code, "reason": reason}})
            job = self.objects["jobs"].get(pod["metadata"]["job"])
            if job and not job["status"].get("conditions"):
                failed = ("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
                self._condition(job, *(failed if code else ("Complete",)))
            if "deletionTimestamp" in pod["metadata"]:
                self._remove_pod(pod)


def stamp(*, nano: bool = False) -> str:
    """Now, as the API writes it."""
    now = _clock.wall()
    return now.strftime("%Y-%m-%dT%H:%M:%S") + (f".{now.microsecond * 1000:09d}Z" if nano else "Z")


def waiting_job(name: str, labels: dict[str, str]) -> Object:
    """One whose container waits."""
    pod = {"terminationGracePeriodSeconds": 1, "containers": [{"args": ["wait"]}]}
    spec = {"activeDeadlineSeconds": 600, "template": {"metadata": {"labels": labels}, "spec": pod}}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}
