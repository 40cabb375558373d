"""The app for INSTALLED_APPS."""

from typing import Any

from django.apps import AppConfig
from django.core.checks import Error, register


class TobanConfig(AppConfig):
    """`toban.django`. It has no tables; its models are what the admin pages read over REST."""

    name = "toban.django"
    label = "toban"
    verbose_name = "Toban"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Checks the setting TOBAN with `manage.py check`."""
        register(_check_settings, "toban")


def _check_settings(**_: Any) -> list[Any]:
    from django.core.exceptions import ImproperlyConfigured

    from toban.django.conf import options

    try:
        options()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="toban.E001")]
    return []
