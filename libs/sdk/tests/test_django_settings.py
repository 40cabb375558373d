"""The setting TOBAN of a Django project: what is refused, where, and with which remedy."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from toban.django import conf

REFUSED: tuple[tuple[Any, str], ...] = (
    ([], "the setting TOBAN is a dict; see docs/django.md"),
    ({"PROJEKT": "a"}, "the setting TOBAN has PROJEKT; its keys are CA_FILE, EMIT, INTERPRETER, JOB, PROJECT, "),
    ({"EMIT": "mail"}, "TOBAN['EMIT'] is 'mail'; it is one of rest, database"),
    ({"TOKEN": "x"}, "TOBAN has a token and no address"),
    ({"JOB": []}, "TOBAN['JOB'] must be a dict, is list"),
    ({"JOB": {"timeout": 60}}, "TOBAN['JOB'] has 'timeout', which is no key; did you mean 'timeout_seconds'?"),
    ({"JOB": {"steps": []}}, "TOBAN['JOB'] has 'steps': the command is the first argument of command_job"),
    ({"JOB": {"labels": "a=b"}}, "TOBAN['JOB'] has 'labels', which must be a dict, and is str"),
    ({"INTERPRETER": "python3"}, "TOBAN['INTERPRETER'] is 'python3'; give an absolute path on the executors"),
    ({"PROJECT_DIR": "shop"}, "TOBAN['PROJECT_DIR'] is 'shop'; give an absolute path on the executors"),
    ({"URL": 80}, "TOBAN['URL'] is 80; it is a text"),
    ({"RETRY_SECONDS": "30"}, "TOBAN['RETRY_SECONDS'] is '30'; it is a number of seconds, 0 or more"),
)


def test_a_wrong_setting_is_refused(monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    for given, message in REFUSED:
        with subtests.test(str(given)):
            monkeypatch.setattr(conf, "settings", SimpleNamespace(TOBAN=given))
            with pytest.raises(ImproperlyConfigured) as caught:
                conf.options()
            assert str(caught.value).startswith(message)


def test_keys_that_every_job_has_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"timeout_seconds": 60, "labels": {"team": "shop"}, "secrets": [{"name": "db"}], "retry": {"max_attempts": 3}}
    given = {"JOB": job, "INTERPRETER": "/srv/venv/bin/python", "RETRY_SECONDS": 0.5}
    monkeypatch.setattr(conf, "settings", SimpleNamespace(TOBAN=given))
    assert conf.options() == given
