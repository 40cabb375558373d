"""manage.py run_script FILE"""

import runpy
from pathlib import Path

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Runs a file of the folder `scripts`."""

    def add_arguments(self, parser):
        """The file."""
        parser.add_argument("file")

    def handle(self, *, file, **_):
        """Print a last line when it has raised nothing."""
        runpy.run_path(str(Path(__file__).parents[3] / "scripts" / file))
        self.stdout.write("all is as it should be")
