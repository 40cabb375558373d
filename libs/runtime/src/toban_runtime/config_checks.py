"""What can be wrong with a configuration, and the one line that says so: what, where, the remedy."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from toban_domain.errors import ErrorCode, TobanError
from toban_observability import admin_token

PREFIX = "SCHEDULER_"
FILE_SUFFIX = "_FILE"
SAMPLES = frozenset(
    {
        "changeme",
        "changeit",
        "password",
        "passwd",
        "secret",
        "example",
        "sample",
        "default",
        "placeholder",
        "minioadmin",
    }
)
"""Secrets that stand in documents and samples; compared after dropping case, digits and punctuation."""
SAMPLE_PARTS = ("changeme", "examplekey", "yourpassword", "yoursecret")


class ConfigError(TobanError):
    """The configuration is wrong: the message is one line that says what, where and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CONFIG_INVALID, " ".join(message.split()))


def variable(field: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field.upper()


def is_secret(info: FieldInfo) -> bool:
    """Secret fields are those kept out of repr."""
    return info.repr is False


class SecretFiles(PydanticBaseSettingsSource):
    """Reads secret fields from the files that `SCHEDULER_<NAME>_FILE` names; one trailing newline is not part of them."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The value of one field, its variable, and that it needs no decoding."""
        name = variable(field_name) + FILE_SUFFIX
        path = os.environ.get(name, "") if is_secret(field) else ""
        if not path:
            return None, field_name, False
        if os.environ.get(variable(field_name)):
            raise ConfigError(f"{name}: {variable(field_name)} is set as well; unset one of the two")
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: cannot read {path!r} ({error}); name a readable text file") from None
        return text.removesuffix("\n").removesuffix("\r"), field_name, False

    def __call__(self) -> dict[str, Any]:
        """All secrets that came as files."""
        found = {name: self.get_field_value(info, name)[0] for name, info in self.settings_cls.model_fields.items()}
        return {name: value for name, value in found.items() if value is not None}


def check_unknown(fields: Iterable[str], environ: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
    """Refuse a SCHEDULER_* variable that no field has: it is a typing error or meant for another version."""
    known = {variable(name) for name in fields} | {variable(name) + FILE_SUFFIX for name in secrets}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "unset it"
            raise ConfigError(f"{name}: unknown variable in the environment; {hint}")


def check_required(config: BaseSettings, required: Iterable[str]) -> None:
    """Refuse an empty field that this service cannot do without."""
    for name in required:
        if getattr(config, name) in ("", None, ()):
            meaning = type(config).model_fields[name].description
            also = f" (or {variable(name)}{FILE_SUFFIX})" if is_secret(type(config).model_fields[name]) else ""
            raise ConfigError(f"{variable(name)}: not set in the environment; set it{also} to the {meaning}")


def check_sample_secrets(config: BaseSettings) -> None:
    """Refuse a secret, or a password inside a URL, that stands in everybody's documents."""
    for name, info in type(config).model_fields.items():
        if is_secret(info) and any(map(is_sample, secrets_in(getattr(config, name)))):
            raise ConfigError(f"{variable(name)}: holds a sample secret; replace it by a generated one")


def check_token_file(path: Path | None) -> None:
    """Refuse a token file of the admin port that cannot be used; `path` None = not set. Raises ConfigError."""
    if path is None:
        return
    try:
        token = admin_token.read_token(path)
    except ValueError as error:
        raise ConfigError(f"{admin_token.SETTING}: {error}") from None
    if is_sample(token.decode(errors="replace")):
        raise ConfigError(f"{admin_token.SETTING}: {path} holds a sample secret; replace it by a generated one")


# As libpq cuts it: credentials to the first "@", hosts with ports, database, parameters.
_DATABASE_URL = re.compile(r"postgres(?:ql)?://(?:[^@/]*@)?(?P<hosts>[^@/?]*)(?:/[^@?]*)?(?:\?.*)?")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")


def check_database_url(name: str, url: str) -> None:
    """Refuse what is no PostgreSQL URL, without a word of it: it holds a password, and libpq's own messages repeat it."""
    if not url:
        return
    cut = _DATABASE_URL.fullmatch(url)
    if cut is None or not all(_HOST.fullmatch(host) for host in cut["hosts"].split(",")):
        raise ConfigError(
            f"{name}: is not a PostgreSQL URL (its value is secret and not shown); write "
            "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for each of @ / : ? # % in the password"
        )


def secrets_in(value: str) -> list[str]:
    """The secret parts of a value: the password of a URL, else the value itself."""
    if "://" not in value:
        return [value]
    try:
        password = urlsplit(value).password
    except ValueError:
        return []
    return [unquote(password)] if password else []


def is_sample(secret: str) -> bool:
    """Whether a secret is one of the samples, however decorated ("ChangeMe123!")."""
    letters = re.sub(r"[^a-z]", "", secret.lower())
    return letters in SAMPLES or any(part in letters for part in SAMPLE_PARTS)


def one_line(error: ValidationError) -> str:
    """The first problem of a validation, without the value (it may be secret)."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = str(first["loc"][0]) if first["loc"] else "configuration"
    more = error.error_count() - 1
    tail = f" ({more} more)" if more else ""
    return f"{variable(field)}: {first['msg'].removeprefix('Value error, ')}; correct it in the environment{tail}"


def parse_addresses(value: Any) -> tuple[str, ...]:
    """`host:port,host:port` to a tuple; brackets around an IPv6 host stay."""
    parts = value.split(",") if isinstance(value, str) else value
    addresses = tuple(part.strip() for part in parts if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ValueError(f"{address!r} is not host:port")
    return addresses


def parse_labels(value: Any) -> dict[str, str]:
    """`k=v,k=v` to a dict; keys are unique and not empty."""
    if not isinstance(value, str):
        return dict(value)
    labels: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in value.split(","))):
        key, equals, text = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"{part!r} is not key=value")
        if key.strip() in labels:
            raise ValueError(f"label {key.strip()!r} is given twice")
        labels[key.strip()] = text.strip()
    return labels
