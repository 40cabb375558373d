"""The app for INSTALLED_APPS."""

from django.apps import AppConfig
from django.core.checks import register

from toban.django.checks import check_declarations, check_settings


class TobanConfig(AppConfig):
    """`toban.django`. It has no tables; its models are what the admin pages read over REST."""

    name = "toban.django"
    label = "toban"
    verbose_name = "Toban"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Checks the setting TOBAN and the declarations with `manage.py check`."""
        register(check_settings, "toban")
        register(check_declarations, "toban")
