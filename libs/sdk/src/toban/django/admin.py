"""Read-only pages of the project's jobs and their runs in its admin site, for staff with the permission to view them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from toban.declaring.keys import LABEL
from toban.django import conf
from toban.django.models import Job, Run
from toban.errors import InvalidRequestError, NotFoundError, TobanError

SHOWN_RUNS = 100
SHOWN_LINES = 200


class _ReadOnly(admin.ModelAdmin):
    """A list and a page of each object, read over REST with the token of the project."""

    def has_add_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False

    def has_change_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, _request: HttpRequest, _obj: Any = None) -> bool:
        return False

    def delete_view(self, _request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """Nothing is deleted here; what is inherited would look for the object in a table."""
        raise PermissionDenied

    def history_view(self, _request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """The site of Toban has the history."""
        raise Http404

    def page(self, request: HttpRequest, template: str, title: str, read: Callable[[], dict[str, Any]]) -> HttpResponse:
        """A page; the reason in place of the values when the site of Toban cannot be read. Raises Http404, PermissionDenied."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        context = {**self.admin_site.each_context(request), "title": title, "opts": self.opts}
        status = 200
        try:
            context |= read()
        except (NotFoundError, InvalidRequestError, ValueError) as error:
            # ValueError: a name that cannot be, such as "..".
            raise Http404(str(error)) from None
        except TobanError as error:
            context["problem"], status = str(error), 503
        return TemplateResponse(request, f"toban_django/{template}.html", context, status=status)


@admin.register(Job)
class JobAdmin(_ReadOnly):
    """Jobs, and each with its schedules and last runs."""

    def changelist_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """The jobs of the project."""
        return self.page(
            request, "jobs", "Jobs", lambda: {"jobs": list(conf.own_jobs()), "project": conf.project_name()}
        )

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *_: Any, **__: Any) -> HttpResponse:
        """One job."""
        name = _named(object_id)

        def read() -> dict[str, Any]:
            client = conf.client()
            return {
                "job": client.jobs.get(name),
                "schedules": list(client.schedules.list(job=name)),
                "runs": list(client.runs.list(job=name, limit=SHOWN_RUNS)),
            }

        return self.page(request, "job", f"Job {name}", read)


@admin.register(Run)
class RunAdmin(_ReadOnly):
    """The newest runs of the project's jobs, and each with its values and the end of its output."""

    def changelist_view(self, request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
        """The newest runs, in the state that the query names."""

        def read() -> dict[str, Any]:
            project, state = conf.project_name(), request.GET.get("state", "")
            runs = conf.client().runs.list(state=state, label={LABEL: project}, limit=SHOWN_RUNS)
            return {"runs": list(runs), "project": project}

        return self.page(request, "runs", "Runs", read)

    def changeform_view(self, request: HttpRequest, object_id: str | None = None, *_: Any, **__: Any) -> HttpResponse:
        """One run."""
        given = _named(object_id)
        if not (given.isascii() and given.isdigit() and len(given) < 19):
            raise Http404

        def read() -> dict[str, Any]:
            client = conf.client()
            run = client.runs.get(int(given))
            lines = list(client.runs.logs(run.id, tail=SHOWN_LINES))
            return {"run": run, "payload": _text(run.payload), "result": _text(run.result), "lines": lines}

        return self.page(request, "run", f"Run {given}", read)


def _text(value: Any) -> str:
    """As JSON; empty without a value."""
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)


def _named(object_id: str | None) -> str:
    if not object_id:
        raise Http404
    return object_id
