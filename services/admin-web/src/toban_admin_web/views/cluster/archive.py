"""Where the output of runs is stored: days in the database, days in the archive, and what waits between them."""

from __future__ import annotations

from flask import Blueprint, Response

from toban_admin_web.decide.api_models import Archive
from toban_admin_web.views.view_context import page, read
from toban_domain.errors import ErrorCode, TobanError

views = Blueprint("archive", __name__)
# Of the log-archiver, which a coordinator asks: the frame of the page does not need it.
_NO_ANSWER = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED, ErrorCode.UNIMPLEMENTED})


@views.get("/archive")
def show() -> Response:
    """The newest day first."""
    try:
        archive = read("JobReader.GetArchive", Archive)
    except TobanError as error:
        if error.code not in _NO_ANSWER:
            raise
        return page("archive", archive=None, error=error.message)
    open_chunks = sum(day.open_chunks for day in archive.days if day.due)
    return page("archive", archive=archive, days=archive.days[::-1], open_chunks=open_chunks)
