"""A request whose fields are the arguments of a use case has the names of its parameters: no type checker compares them."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_type_hints

import pytest

from toban_coordinator.server.hooks import HooksService
from toban_coordinator.server.job_control import JobControl, JobControlDeps
from toban_coordinator.server.operations import Operations, OperationsDeps
from toban_coordinator.server.webhooks import WebhooksService

CALL = re.compile(r"self\._(?:deps\.)?(\w+)\.(\w+)\(\*\*arguments_of\(request, context\)\)")
USE_CASES: dict[type, Any] = {
    JobControl: JobControlDeps,
    Operations: OperationsDeps,
    HooksService: HooksService.__init__,
    WebhooksService: WebhooksService.__init__,
}


def test_each_field_of_a_request_is_a_parameter_of_its_use_case(subtests: pytest.Subtests) -> None:
    found = 0
    for service, deps in USE_CASES.items():
        for name, method in inspect.getmembers(service, inspect.isfunction):
            for owner, called in CALL.findall(inspect.getsource(method)):
                found += 1
                with subtests.test(name):
                    fields = get_type_hints(method)["request"].DESCRIPTOR.fields_by_name
                    use_case = getattr(get_type_hints(deps)[owner], called)
                    assert set(inspect.signature(use_case).parameters) == {"self", "actor", *fields}
    assert found >= 16
