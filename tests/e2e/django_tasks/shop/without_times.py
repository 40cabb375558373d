"""The settings by event, and an app with a task that has a priority of its own."""

from shop.by_event import *

INSTALLED_APPS = [*INSTALLED_APPS, "urgent"]
