"""Settings of the tests of Django, whose modules are the package `tasks` beside this file."""

from shop.settings import *

INSTALLED_APPS = ["toban.django"]
TEST_RUNNER = "toban_suite.Runner"
_WAITING = {"BACKEND": "toban_suite.WaitingBackend", "QUEUES": ["default"]}
# Steps know a task by the name of its backend in the test that has enqueued it.
TASKS = {
    "default": _WAITING,
    "immediate": _WAITING,
    "ready": {
        "BACKEND": "toban_suite.ReadyBackend",
        "QUEUES": ["default"],
        "OPTIONS": {"JOB": {"selector": {"labels": {"zone": "nowhere"}}}},
    },
}
TOBAN = {"PROJECT": "suite"}
