"""`secrets:` of a job: the values that it needs, by name (docs/secrets.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ValidationError, ValidatorFunctionWrapHandler, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from toban_domain.header_secrets import secret_names
from toban_domain.http_call import HARMLESS
from toban_domain.payload import kind_of
from toban_domain.secret import FILE, MAX_SECRETS, NAME, NAME_HINT, VARIABLE, SecretRef, owner_problem
from toban_manifests.section import IfMissing, Section, key, problem, problems_of, raise_problems
from toban_manifests.values import Text

# Scheme, host and port without a template, and something that ends them.
_LITERAL_HOST = re.compile(r"https?://[^/?#$\\@\s]+([/?#]|$)", re.IGNORECASE)
_NOT_BY_VALUE = (
    "write file_env: {0}: it holds the path of a file with the value. The environment of a process is inherited by every program "
    "that it starts, and can be read in /proc"
)


def _check_name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise problem(f"{value!r} is not a name of a secret", NAME_HINT)
    if (owned := owner_problem(value)) is not None:
        raise problem(owned[0], "give the job a secret of its own with `toban secret set`")
    return value


def _check_file(value: str) -> str:
    if value and not FILE.fullmatch(value):
        raise problem(
            f"{value!r} is not a name of a file", "use 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', without folders"
        )
    return value


def _check_variable(value: str) -> str:
    if value and not VARIABLE.fullmatch(value):
        raise problem(f"{value!r} is not a name of a variable", "use letters, digits and '_', such as PGPASSFILE")
    if value.startswith("TOBAN_"):
        raise problem(f"{value!r} belongs to Toban", "choose a name without TOBAN_ at its beginning")
    return value


class Secret(Section):
    """A value that is stored with `toban secret set`."""

    MEANT = {"secret": "name", "key": "name", "path_env": "file_env", "path": "file"}

    name: Annotated[
        Text,
        AfterValidator(_check_name),
        WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"}),
        IfMissing("add `name:` of a secret of `toban secret list`"),
    ] = key(..., "name of the secret", "db-password", type_name="name")
    file: Annotated[
        Text, AfterValidator(_check_file), WithJsonSchema({"type": "string", "pattern": f"^{FILE.pattern}$"})
    ] = key(
        "",
        "its file in the folder `$TOBAN_SECRETS_DIR`",
        "db.pass",
        type_name="name of a file",
        unset="the name of the secret",
    )
    file_env: Annotated[
        Text, AfterValidator(_check_variable), WithJsonSchema({"type": "string", "pattern": f"^{VARIABLE.pattern}$"})
    ] = key(
        "",
        "a variable that holds the path of the file; a value is never put into the environment",
        "PGPASSFILE",
        type_name="name of a variable",
    )

    @classmethod
    def _refused(cls, value: Mapping[Any, Any]) -> Iterator[PydanticCustomError]:
        """A wish for the value itself in the environment is answered with the reason."""
        if "env" in value:
            wanted = value["env"]
            shown = wanted if isinstance(wanted, str) and VARIABLE.fullmatch(wanted) else "NAME_FILE"
            yield problem("is not offered: secrets are files", _NOT_BY_VALUE.format(shown), below=".env")
        yield from super()._refused({name: item for name, item in value.items() if name != "env"})

    def to_spec(self) -> SecretRef:
        """As the domain has it."""
        return SecretRef(name=self.name, file=self.file if self.file != self.name else "", file_env=self.file_env)


def check_secrets(value: Any, handler: ValidatorFunctionWrapHandler) -> list[Secret]:
    """How many, each of them, and what may occur once only."""
    if not isinstance(value, list):
        raise problem(f"must be a list, is {kind_of(value)}", "write [{name: db-password}]")
    found: list[PydanticCustomError | InitErrorDetails] = []
    if len(value) > MAX_SECRETS:
        found.append(problem(f"has {len(value)} secrets", f"use at most {MAX_SECRETS}"))
    secrets: list[Secret] = []
    try:
        secrets = handler(value)
    except ValidationError as error:
        found += problems_of(error)
    raise_problems([*found, *_used_twice(secrets)])
    return secrets


def variable_problems(job: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    """Variables that `env` of the job sets as well."""
    for index, secret in enumerate(job.get("secrets") or ()):
        if secret.get("file_env") in (job.get("env") or {}):
            message = f"{secret['file_env']!r} is a variable of `env` as well"
            yield problem(message, "choose another name for one of them", below=f".secrets[{index}].file_env")


def without_secret_headers(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """The job without the headers that `header_problems` checks: everywhere else a secret is no reference."""

    def rest(step: Mapping[str, Any]) -> Mapping[str, Any]:
        http = step.get("http") or {}
        headers = {name: text for name, text in (http.get("headers") or {}).items() if not secret_names(text)}
        return {**step, "http": {**http, "headers": headers}} if http else step

    return {**job, "steps": [rest(step) for step in job.get("steps") or ()]}


def header_problems(job: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    """Secrets in headers: of this job, alone in a header that no redirect keeps, and for a host that no template makes."""
    known = {secret["name"] for secret in job.get("secrets") or ()}
    for index, step in enumerate(job["steps"]):
        http = step.get("http") or {}
        at, has_secrets = f".steps[{index}].http", False
        for header, text in (http.get("headers") or {}).items():
            names = secret_names(text)
            has_secrets = has_secrets or bool(names)
            for name in names:
                if name not in known:
                    hint = f"add {{name: {name}}} to `secrets` of the job"
                    yield problem(f"secret {name!r} is not one of the job", hint, below=f"{at}.headers.{header}")
            if names and (len(names) != text.count("{{") or text.count("}}") != len(names)):
                hint = "put other references into headers of their own, and leave out ?? and $${{"
                yield problem("has more than texts and secrets", hint, below=f"{at}.headers.{header}")
            if names and header.lower() in HARMLESS:
                hint = "use Authorization, or a header of the server's own"
                yield problem("goes along to other hosts, and has a secret", hint, below=f"{at}.headers.{header}")
        if has_secrets and not _LITERAL_HOST.match(http.get("url") or ""):
            hint = "write https://host/ literally; templates may follow"
            yield problem("has a template in its host, and a header has a secret", hint, below=f"{at}.url")


def _reads_in_headers(job: Mapping[str, Any]) -> bool:
    headers = [(step.get("http") or {}).get("headers") or {} for step in job["steps"]]
    return any(secret_names(text) for one in headers for text in one.values())


def unread_problems(job: Mapping[str, Any]) -> Iterator[PydanticCustomError]:
    """Secrets of a job whose steps read no files of the executor."""
    types = {step.get("type", "command") for step in job["steps"]} if job.get("secrets") else set()
    if "container" in types:
        message = "has no effect: files of secrets are not in containers"
        hint = "take it out and give the container a folder of the machine with `mounts`, or run the program as a `command` step in a job of its own"
        yield problem(message, hint, below=".secrets")
    elif "kubernetes" in types:
        message = "has no effect: files of secrets are not in pods"
        hint = "take it out; a service account of the pod, or the cluster's own means, give it secrets"
        yield problem(message, hint, below=".secrets")
    elif "http" in types and types <= {"http", "external"} and not _reads_in_headers(job):
        message = "has no effect: http steps read no files"
        hint = "take it out, or put ${{ secrets.NAME }} into a header of the step"
        yield problem(message, hint, below=".secrets")


def _used_twice(secrets: list[Secret]) -> Iterator[PydanticCustomError]:
    files: set[str] = set()
    variables: set[str] = set()
    for index, secret in enumerate(secrets):
        ref = secret.to_spec()
        if ref.file_name in files:
            yield problem(f"file {ref.file_name!r} is used twice", "give each its own `file:`", below=f"[{index}]")
        if ref.file_env and ref.file_env in variables:
            yield problem(f"{ref.file_env!r} is used twice", "give each its own variable", below=f"[{index}].file_env")
        files.add(ref.file_name)
        variables.add(ref.file_env)
