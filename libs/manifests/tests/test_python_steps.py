"""Steps in Python and of Django: sound ones become specs, mistakes name their path and the way out."""

from __future__ import annotations

from typing import Any

import pytest

from toban_domain.job import JobSpec
from toban_manifests.read import Document, find_problems


def job(**step: Any) -> dict[str, Any]:
    spec = {"steps": [{name: value for name, value in step.items() if value is not None}]}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}


def python(**step: Any) -> dict[str, Any]:
    return job(**{"type": "python", "callable": "a:b", **step})


def django(**step: Any) -> dict[str, Any]:
    needed = {"type": "django", "command": "a", "project": "/srv", "interpreter": "/srv/bin/python3.11"}
    return job(**{**needed, **step})


def test_a_django_step() -> None:
    body = django(args=["--x", "y"], settings="shop.settings", warm=True, preload=["shop.models"])
    [manifest], found = find_problems([Document("a.yaml", body)], check_rule=lambda rule: [])
    assert found == []
    spec = manifest.spec
    assert isinstance(spec, JobSpec)
    [step] = spec.steps
    assert step.body == {
        "command": "a",
        "args": ["--x", "y"],
        "settings": "shop.settings",
        "project": "/srv",
        "interpreter": "/srv/bin/python3.11",
        "warm": True,
        "preload": ["shop.models"],
    }
    assert JobSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        (python(preload=["a"]), "spec.steps[0].preload", "has no effect without `warm: true`"),
        (python(warm=True, preload="a"), "spec.steps[0].preload", "must be a list of modules"),
        (python(warm=True, preload=["a b"]), "spec.steps[0].preload[0]", "does not name a module"),
        (python(interpreter="/bin/sh"), "spec.steps[0].interpreter", "is not a Python"),
        (python(interpreter="bin/python"), "spec.steps[0].interpreter", "is not absolute"),
        (
            job(argv=["x"], warm=True),
            "spec.steps[0].warm",
            "`type: python` or `type: django` and not to command",
        ),
        (python(command="a"), "spec.steps[0].command", "belongs to `type: django`"),
        (django(command=None), "spec.steps[0].command", "add `command:` with the name of the management command"),
        (django(project=None), "spec.steps[0].project", "add `project:` with the folder of manage.py"),
        (django(interpreter=None), "spec.steps[0].interpreter", "add `interpreter:` with the Python that has Django"),
        (django(project=""), "spec.steps[0].project", "is missing; add `project:`"),
        (django(interpreter=""), "spec.steps[0].interpreter", "is missing; add `interpreter:`"),
        (django(command="a --b"), "spec.steps[0].command", "arguments go into `args`, options into the payload"),
        (django(command="shell"), "spec.steps[0].command", "`allow_shell: true`"),
        (django(args="a"), "spec.steps[0].args", "must be a list of texts"),
        (django(args=[1]), "spec.steps[0].args[0]", 'put it into quotes: "1"'),
        (django(settings="a/b"), "spec.steps[0].settings", "does not name a module"),
        (django(project="shop"), "spec.steps[0].project", "is not absolute"),
        (django(python_path=["/a"]), "spec.steps[0].python_path", "belongs to `type: python` and not to django"),
        (django(command_name="a"), "spec.steps[0].command_name", "did you mean 'command'?"),
    ],
)
def test_a_mistake_names_its_path_and_the_way_out(body: Any, path: str, words: str) -> None:
    [problem] = find_problems([Document("a.yaml", body)], check_rule=lambda rule: [])[1]
    assert problem.path == path
    assert words in problem.line()
