"""The app for INSTALLED_APPS."""

import contextlib
import importlib

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
        # Django 6 registers its checks of the setting TASKS with this import, and earlier ones have none.
        with contextlib.suppress(ImportError):
            importlib.import_module("django.tasks")
        register(check_declarations, "toban")
