"""The settings with the database of Toban: a task is an event of the transaction."""

from urllib.parse import unquote, urlparse

from place import DATABASE, NAME

from shop.settings import *

url = urlparse(DATABASE)
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.path[1:],
        "USER": url.username,
        "PASSWORD": unquote(url.password or ""),
        "HOST": url.hostname,
        "PORT": url.port,
    }
}
TOBAN = {"PROJECT": f"{NAME}-by-event", "EMIT": "database"}
