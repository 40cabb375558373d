"""Every setting of the sign-in with an OpenID provider can be set in each of the three ways: `make up`, Compose, chart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from toban_admin_web.config import AdminWebConfig
from toban_coordinator.config import CoordinatorConfig
from toban_runtime.config import ServiceConfig
from toban_runtime.config_checks import is_secret, variable
from toban_stack.services import FOR_COORDINATORS, FOR_SITE

ROOT = Path(__file__).resolve().parents[2]
CONFIGS: dict[str, type[ServiceConfig]] = {"coordinator": CoordinatorConfig, "admin-web": AdminWebConfig}
LEAST = {"postgresql": {"existingSecret": "pg"}, "redis": {"existingSecret": "rd"}}
OIDC = {
    "issuer": "https://id.example.com",
    "clientId": "toban",
    "clientSecret": {"name": "oidc-client"},
    "caSecret": {"name": "oidc-ca"},
}


def is_of_sign_in(service: str, name: str) -> bool:
    """The site is asked under a name, and counts addresses behind proxies."""
    return name.startswith(("oidc_", "password_sign")) or (service, name) in {
        ("admin-web", "http_names"),
        ("admin-web", "http_proxies"),
    }


SETTINGS = [
    (service, variable(name), is_secret(info))
    for service, config in CONFIGS.items()
    for name, info in config.model_fields.items()
    if is_of_sign_in(service, name)
]


def ways(name: str, secret: bool) -> set[str]:
    """The variables by which one setting can be given."""
    return {name, f"{name}_FILE"} if secret else {name}


def test_the_list_has_the_settings_of_both_services() -> None:
    assert ("coordinator", "SCHEDULER_OIDC_SCOPE", False) in SETTINGS
    assert ("admin-web", "SCHEDULER_OIDC_CLIENT_SECRET", True) in SETTINGS and len(SETTINGS) >= 14


@pytest.mark.parametrize(("service", "name", "secret"), SETTINGS)
def test_make_up_passes_it_on(service: str, name: str, secret: bool) -> None:
    passed = {"coordinator": FOR_COORDINATORS, "admin-web": FOR_SITE}[service]
    assert ways(name, secret) & {f"SCHEDULER_{one}" for one in passed}


@pytest.mark.parametrize(("service", "name", "secret"), SETTINGS)
def test_compose_takes_it_from_its_environment(service: str, name: str, secret: bool) -> None:
    found = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"][service]
    given = found["environment"]
    (key,) = ways(name, secret) & set(given)
    assert re.match(r"\$\{[A-Z_]+:[-+]", given[key]), given[key]
    if name.endswith("_CA_FILE"):
        path = given[key].partition(":+")[2].removesuffix("}")
        assert f"${{{name.removeprefix('SCHEDULER_')}:-/dev/null}}:{path}:ro" in found["volumes"]


@pytest.mark.parametrize(("service", "name", "secret"), SETTINGS)
def test_the_chart_sets_it(chart: Any, service: str, name: str, secret: bool) -> None:
    site = {"adminWeb": {"hostNames": ["toban.example.com"], "proxies": 1}}
    objects = chart.render({**LEAST, **site, "oidc": OIDC})
    (found,) = [one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"] == f"toban-{service}"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert ways(name, secret) & {one["name"] for one in container["env"]}
