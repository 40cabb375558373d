"""What a manifest may refer to: secrets, and values of a run in templates."""

from __future__ import annotations

from typing import Any

import pytest

from toban_domain.job import JobSpec
from toban_domain.schedule import RuleSpec
from toban_manifests.read import Document, find_problems, read_manifests

SECRET = "${{ secrets.api }}"
API = [{"name": "api"}]


def no_check(rule: RuleSpec) -> list[tuple[str, str, str]]:
    return []


def job(**spec: Any) -> dict[str, Any]:
    body = {"steps": [{"argv": ["true"]}], **spec}
    return {"apiVersion": "toban/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": body}


def schedule(**spec: Any) -> dict[str, Any]:
    body = {"job": "x", "interval_seconds": 5, **spec}
    return {"apiVersion": "toban/v1", "kind": "Schedule", "metadata": {"name": "s"}, "spec": body}


def http(*, secrets: Any = None, **request: Any) -> dict[str, Any]:
    request = {"url": "https://a.example", "method": "POST", **request}
    return job(steps=[{"type": "http", "http": request}], secrets=secrets)


def kubernetes(*, secrets: Any = None, **pod: Any) -> dict[str, Any]:
    return job(steps=[{"type": "kubernetes", "kubernetes": {"image": "a:1", **pod}}], secrets=secrets)


def container(*, secrets: Any = None, **image: Any) -> dict[str, Any]:
    return job(steps=[{"type": "container", "container": {"image": "a:1", **image}}], secrets=secrets)


def django(*args: str, command: str = "migrate", **spec: Any) -> dict[str, Any]:
    step = {"type": "django", "command": command, "project": "/srv", "interpreter": "/srv/python", "args": list(args)}
    return job(steps=[step], **spec)


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        (job(repeatable=False), "spec.repeatable", "add concurrency: {dedupe_keys: [KEY]}"),
        (job(env={"A": "${{ payload.a"}), "spec.env.A", "has ${{ without }}"),
        (job(env={"A": "${{ pay.a }}"}), "spec.env.A", "did you mean 'payload'?"),
        (job(steps=[{"argv": ["x", "${{ run.idd }}"]}]), "spec.steps[0].argv[1]", "did you mean 'run.id'?"),
        (job(steps=[{"argv": ["${{ payload.x }}"]}]), "spec.steps[0].argv[0]", "is the program"),
        (
            job(steps=[{"argv": ["sh", "-c", "echo ${{ payload.x }}"]}], allow_shell=True),
            "spec.steps[0].argv[2]",
            "is code, where a value could become a command",
        ),
        (
            job(
                steps=[{"argv": ["x", "${{ payload.usr.id }}"]}],
                payload_schema={"type": "object", "properties": {"user": {}}, "additionalProperties": False},
            ),
            "spec.steps[0].argv[1]",
            "did you mean 'user'?",
        ),
        (http(url="https://a.example/${{ pay.a }}"), "spec.steps[0].http.url", "did you mean 'payload'?"),
        (http(headers={"X-Day": "${{ slot.dat }}"}), "spec.steps[0].http.headers.X-Day", "did you mean 'slot.date'?"),
        (http(body={"a": ["${{ run.idd }}"]}), "spec.steps[0].http.body.a[0]", "did you mean 'run.id'?"),
        (container(argv=["x", "${{ run.idd }}"]), "spec.steps[0].container.argv[1]", "did you mean 'run.id'?"),
        (container(argv=["${{ run.id }}"]), "spec.steps[0].container.argv[0]", "may be the program"),
        (container(argv=["sh", "-c", "${{ run.id }}"]), "spec.steps[0].container.argv[2]", "[sh, -c, 'echo"),
        (job(steps=[{"argv": ["env", "${{ run.id }}"]}]), "spec.steps[0].argv[1]", "name the program"),
        (job(steps=[{"argv": ["tar", "-cf", "a", "${{ run.id }}"]}]), "spec.steps[0].argv[3]", 'put "--" before it'),
        (container(env={"A": "${{ slot.dat }}"}), "spec.steps[0].container.env.A", "did you mean 'slot.date'?"),
        (django("${{ run.idd }}"), "spec.steps[0].args[0]", "did you mean 'run.id'?"),
        (django("${{ run.id }}", command="shell", allow_shell=True), "spec.steps[0].args[0]", "may be code"),
        (http(secrets=[{"name": "a"}]), "spec.secrets", "http steps read no files; take it out, or put"),
        (kubernetes(argv=["${{ run.id }}"]), "spec.steps[0].kubernetes.argv[0]", "may be the program"),
        (kubernetes(env={"A": "${{ slot.dat }}"}), "spec.steps[0].kubernetes.env.A", "did you mean 'slot.date'?"),
        (kubernetes(secrets=[{"name": "a"}]), "spec.secrets", "files of secrets are not in pods; take it out"),
        (container(secrets=[{"name": "a"}]), "spec.secrets", "files of secrets are not in containers; take it out"),
        (
            job(steps=[{"type": "external", "worker_type": "w"}], secrets=[{"name": "a"}]),
            "spec.secrets",
            "external workers do all steps of this job",
        ),
        (schedule(payload={"a": [{"b": "${{ payload.x }}"}]}), "spec.payload.a[0].b", "known here: slot"),
        (http(headers={"A": SECRET}), "spec.steps[0].http.headers.A", "add {name: api} to `secrets` of the job"),
        (
            http(headers={"A": f"{SECRET} ${{{{ payload.a }}}}"}, secrets=API),
            "spec.steps[0].http.headers.A",
            "put other references into headers of their own",
        ),
        (
            http(headers={"Accept": SECRET}, secrets=API),
            "spec.steps[0].http.headers.Accept",
            "goes along to other hosts",
        ),
        *[
            (http(headers={"A": SECRET}, secrets=API, url=url), "spec.steps[0].http.url", "has a template in its host")
            for url in ("https://${{ payload.a }}/", "https://a.example${{ payload.a }}/", "${{ payload.a }}")
        ],
        (http(headers={"A": "x"}, secrets=API), "spec.secrets", "put ${{ secrets.NAME }} into a header"),
        (http(url=f"https://a.example/{SECRET}", secrets=API), "spec.steps[0].http.url", "refers to 'secrets.api'"),
        (http(body={"a": SECRET}, secrets=API), "spec.steps[0].http.body.a", "refers to 'secrets.api'"),
        (job(steps=[{"argv": ["x", SECRET]}], secrets=API), "spec.steps[0].argv[1]", "refers to 'secrets.api'"),
        (job(env={"A": SECRET}, secrets=API), "spec.env.A", "refers to 'secrets.api'"),
        (job(secrets={"a": "b"}), "spec.secrets", "must be a list"),
        (job(secrets=[{"file": "x"}]), "spec.secrets[0].name", "add `name:` of a secret"),
        (job(secrets=[{"name": "A/B"}]), "spec.secrets[0].name", "is not a name of a secret"),
        (job(secrets=[{"name": "webhook.pager"}]), "spec.secrets[0].name", "is for webhook 'pager' alone"),
        (job(secrets=[{"name": "a", "file": "../a"}]), "spec.secrets[0].file", "without folders"),
        (job(secrets=[{"name": "a", "file_env": "A-B"}]), "spec.secrets[0].file_env", "is not a name of a variable"),
        (job(secrets=[{"name": "a", "file_env": "TOBAN_A"}]), "spec.secrets[0].file_env", "belongs to Toban"),
        (job(secrets=[{"name": "a", "env": "A"}]), "spec.secrets[0].env", "write file_env: A"),
        (job(secrets=[{"name": "a"}, {"name": "b", "file": "a"}]), "spec.secrets[1]", "is used twice"),
        (
            job(secrets=[{"name": "a", "file_env": "A"}], env={"A": "b"}),
            "spec.secrets[0].file_env",
            "variable of `env`",
        ),
        (job(secrets=[{"name": f"s{n}"} for n in range(21)]), "spec.secrets", "use at most 20"),
    ],
)
def test_a_mistake_names_its_path_and_the_way_out(body: dict[str, Any], path: str, words: str) -> None:
    _, problems = find_problems([Document("a.yaml", body)], check_rule=no_check)
    [found] = [one.line() for one in problems if one.path == path]
    assert words in found
    assert "\n" not in found


def test_sound_ones_are_kept_as_they_are() -> None:
    words = ["sh", "-c", 'echo "$1"', "sh", "${{ payload.name ?? 0 }}", "$${{ literal"]
    body = job(
        steps=[{"argv": words}],
        allow_shell=True,
        secrets=[{"name": "db", "file": "db", "file_env": "DB_FILE"}, {"name": "key", "file": "id.pem"}],
        repeatable=False,
        schedulable=False,
        concurrency={"dedupe_keys": ["name"]},
    )
    [manifest] = read_manifests([Document("a", body)], check_rule=no_check)
    spec = manifest.spec
    assert isinstance(spec, JobSpec)
    assert spec.templated
    assert spec.concurrency.once
    assert [(one.name, one.file_name, one.file_env) for one in spec.secrets] == [
        ("db", "db", "DB_FILE"),
        ("key", "id.pem", ""),
    ]
    assert JobSpec.from_json(spec.to_json()) == spec


def test_an_http_step_beside_a_command_that_reads_the_secret() -> None:
    steps = [{"argv": ["true"]}, {"type": "http", "http": {"url": "https://a.example/${{ payload.id }}"}}]
    [manifest] = read_manifests([Document("a", job(steps=steps, secrets=[{"name": "a"}]))], check_rule=no_check)
    assert isinstance(manifest.spec, JobSpec) and manifest.spec.templated


@pytest.mark.parametrize("named", [0, 7, "day", ["day"], None])
def test_properties_that_are_no_mapping_are_left_to_the_check_of_the_schema(named: Any) -> None:
    schema = {"type": "object", "properties": named, "additionalProperties": False}
    found = find_problems([Document("a", job(payload_schema=schema))], check_rule=no_check)[1]
    assert found == []
    body = job(payload_schema=schema, concurrency={"limit": 1, "limit_key": "day"})
    [one] = find_problems([Document("a", body)], check_rule=no_check)[1]
    assert one.path == "spec.concurrency.limit_key"


@pytest.mark.parametrize("text", [SECRET, f"Bearer {SECRET}", f"{SECRET}:{SECRET}"])
@pytest.mark.parametrize("url", ["https://a.example", "https://a.example:8443/x?y=${{ payload.a }}"])
def test_a_header_of_an_http_step_takes_secrets_of_the_job(text: str, url: str) -> None:
    body = http(url=url, headers={"Authorization": text, "X-Day": "${{ slot.date }}"}, secrets=API)
    [found] = read_manifests([Document("a.yaml", body)], check_rule=no_check)
    assert isinstance(found.spec, JobSpec) and found.spec.templated
    assert found.spec.steps[0].body["http"]["headers"]["Authorization"] == text
