"""Events of a Django project: they exist when its transaction has committed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from toban import events
from toban.django import conf


def emit(
    event_type: str, payload: Mapping[str, Any] | None = None, *, dedupe_key: str = "", using: str | None = None
) -> None:
    """Emits an event when the transaction of the database `using` commits, at once outside of one, and never when it rolls back.

    With TOBAN['EMIT'] = "rest" it is sent after the commit, and repeated for `RETRY_SECONDS`; it is lost when the process ends in between. A failure
    then raises UnavailableError, AccessError or another TobanError out of the `atomic` block, whose data stays; Django then
    calls no later hook of this commit, so events and hooks after it are lost too. With "database" it is a row of the
    same transaction, which needs `atomic`, and the schema of Toban in that database. The payload is what it is now, not at the commit.

    Times, decimals and UUIDs of the payload become text as DjangoJSONEncoder writes them.

    Raises InvalidRequestError at once for a type, payload or key that cannot be, and OutsideTransactionError with "database".
    """
    alias = using or DEFAULT_DB_ALIAS
    written = events.checked(event_type, payload, dedupe_key, DjangoJSONEncoder().default)["payload"]
    frozen = json.loads(str(written))
    if conf.options().get("EMIT", "rest") == "database":
        events.emit(connections[alias], event_type, frozen, dedupe_key=dedupe_key)
        return
    # A key makes repeating it safe.
    key = dedupe_key or f"django:{uuid.uuid4()}"
    transaction.on_commit(lambda: _send(event_type, frozen, key), using=alias)


def _send(event_type: str, payload: Mapping[str, Any], key: str) -> None:
    conf.client().events.emit(event_type, payload, dedupe_key=key)
