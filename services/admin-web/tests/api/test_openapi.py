"""The description of the API: current, complete, and true for whatever requests schemathesis makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis.checks import CHECKS
from schemathesis.generation import GenerationMode

from toban_admin_web.decide.api_rules import ROUTE_RULES
from toban_admin_web.views.api.all_endpoints import ENDPOINTS
from toban_admin_web.views.api.openapi import as_text, document

COMMITTED = Path(__file__).resolve().parents[4] / "docs" / "openapi.json"
TOKEN = "toban_pat_" + f"{'admin':0>32}"
# Of each of the 100 operations: one in the gate, and with newly drawn ones (`make all`) a small part of what a property gets.
EXAMPLES = 1 if settings.default.derandomize else settings.default.max_examples // 25


def test_the_committed_description_is_current() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == as_text(ENDPOINTS), "run `make docs`"


def test_the_site_serves_it_to_everyone(api: Any) -> None:
    response = api.get("/openapi.json", role="")
    assert response.status_code == 200 and response.get_data(as_text=True) == as_text(ENDPOINTS)


def test_every_route_is_in_it_with_what_it_may_answer() -> None:
    found = document(ENDPOINTS)
    operations = {
        f"{verb.upper()} {path.removeprefix('/api/v1')}": operation
        for path, verbs in found["paths"].items()
        for verb, operation in verbs.items()
    }
    assert set(operations) == set(ROUTE_RULES)
    assert len({one["operationId"] for one in operations.values()}) == len(operations)
    for route, one in operations.items():
        assert one["summary"].endswith("."), route
        assert {"400", "500", "503"} <= set(one["responses"]), route


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "mode",
    [GenerationMode.POSITIVE, pytest.param(GenerationMode.NEGATIVE, marks=pytest.mark.long)],
    ids=lambda mode: mode.value,
)
def test_no_request_gets_an_answer_that_is_not_described(api: Any, mode: GenerationMode) -> None:
    """No 5xx, no status, type, body or header beyond the description; what it forbids is refused, what it demands of a caller is checked."""
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", api.web.worker.app)
    checks = [check for check in CHECKS.get_all() if check.__name__ not in LEFT_OUT]
    for found in schema.get_all_operations():
        operation = found.ok()
        # Streams last as long as a run: test_streams.py.
        if operation.path.endswith("/stream"):
            continue

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def probe(case: Any) -> None:
            # A wrong parameter without a value is not sent, so nothing is wrong with the request.
            assume(all(value not in ([], {}) for value in (case.query or {}).values()))
            case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"}, checks=checks)

        probe()


# The other roles are in verdicts.txt; positive_data_acceptance is not for answers of coordinators, which know more than the description.
LEFT_OUT = {"ignored_auth", "positive_data_acceptance", "use_after_free", "ensure_resource_availability"}
