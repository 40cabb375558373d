"""Actions on executors and on the leader: drain, undrain, detach, demote. Each names the epoch of the leader that the operator saw."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, request, url_for

from toban_admin_web.decide.api_models import Cluster, Executor, Executors, NewLeader
from toban_admin_web.decide.dashboard import seen_leader, successors
from toban_admin_web.views.actions import Refused, confirmed, form, given_reason, require
from toban_admin_web.views.view_context import read, write
from toban_domain.access import Action
from toban_domain.errors import ErrorCode, TobanError

METHODS = {
    "drain": "Operations.DrainExecutor",
    "undrain": "Operations.UndrainExecutor",
    "detach": "Operations.DetachExecutor",
}
DONE = {"drain": "drained", "undrain": "undrained", "detach": "detached"}
MODES = ("let_finish", "stop")

views = Blueprint("cluster_actions", __name__)


@views.get("/executors/<id:worker_id>/drain")
def ask_drain(worker_id: int) -> Response:
    """Asks whether the executor gets no new runs."""
    return _executor_form("drain", worker_id)


@views.post("/executors/<id:worker_id>/drain")
def drain(worker_id: int) -> Response:
    """It gets no new runs, also after a restart."""
    return _change_executor("drain", worker_id)


@views.get("/executors/<id:worker_id>/undrain")
def ask_undrain(worker_id: int) -> Response:
    """Asks whether the executor gets runs again."""
    return _executor_form("undrain", worker_id)


@views.post("/executors/<id:worker_id>/undrain")
def undrain(worker_id: int) -> Response:
    """It gets runs again."""
    return _change_executor("undrain", worker_id)


@views.get("/executors/<id:worker_id>/detach")
def ask_detach(worker_id: int) -> Response:
    """Asks whether to take this incarnation out of the cluster, and what becomes of its runs."""
    return _executor_form("detach", worker_id)


@views.post("/executors/<id:worker_id>/detach")
def detach(worker_id: int) -> Response:
    """It leaves the cluster; its process registers again when its runs have ended."""
    return _change_executor("detach", worker_id)


@views.get("/cluster/demote")
def ask_demote() -> Response:
    """Asks whether another coordinator is to lead."""
    return _demote_form()


@views.post("/cluster/demote")
def demote() -> Response:
    """The leader that the operator saw steps down."""

    def work() -> str:
        write("Operations.DemoteLeader", NewLeader, epoch=_given_epoch(), reason=given_reason())
        return url_for("cluster.show", done="demoted")

    return confirmed(work, _demote_form)


def _change_executor(verb: str, worker_id: int) -> Response:
    def work() -> str:
        fields = {"worker_id": worker_id, "epoch": _given_epoch(), "reason": given_reason()}
        if verb == "detach":
            fields["mode"] = request.form.get("mode", MODES[0])
        write(METHODS[verb], Executor, **fields)
        return url_for("executors.show", done=DONE[verb], of=worker_id)

    return confirmed(work, lambda status, **why: _executor_form(verb, worker_id, status, **why))


def _executor_form(verb: str, worker_id: int, status: int = 200, **why: Any) -> Response:
    chosen = request.form.get("mode", MODES[0])
    return _form(
        "executor_action", status, verb=verb, executor=lambda: _executor(worker_id), modes=MODES, chosen=chosen, **why
    )


def _demote_form(status: int = 200, **why: Any) -> Response:
    return _form("demote", status, **why)


def _form(template: str, status: int, **values: Any) -> Response:
    """The page of an action. One that was opened in the time of another leader has no form: the operator looks at the cluster again."""
    require(Action.OPERATE)
    cluster = read("JobReader.GetCluster", Cluster)
    leader = seen_leader(cluster)
    seen = _seen_epoch() or leader.epoch
    find = values.pop("executor", None)
    found = {} if find is None else {"executor": find()}
    shown = {"leader": leader, "seen": seen, "stale": seen != leader.epoch, "successors": successors(cluster)}
    return form(template, status, **shown, **found, **values)


def _executor(worker_id: int) -> Executor:
    for one in read("JobReader.ListExecutors", Executors, include_off=True).executors:
        if one.worker_id == worker_id:
            return one
    raise TobanError(ErrorCode.EXECUTOR_NOT_FOUND, f"there is no executor {worker_id}")


def _seen_epoch() -> int:
    """Of the page that led here, or of the form; 0 without one."""
    text = request.form.get("epoch") or request.args.get("epoch", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _given_epoch() -> int:
    """Raises Refused when the form names none: a request without an epoch would act on any leader."""
    epoch = _seen_epoch()
    if not epoch:
        raise Refused("no_epoch")
    return epoch
