"""manage.py count_books --shelves 3"""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand

from toban.django import TobanCommandMixin


class Command(TobanCommandMixin, BaseCommand):
    """Counts the books of some shelves."""

    help = "Counts books"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Options; the payload of a run has them under their names."""
        parser.add_argument("--shelves", type=int, default=1)

    def handle(self, *, shelves: int, **_options: object) -> None:
        """Print the count; it is the result of the run too."""
        books = 0
        for _ in self.track(range(shelves)):
            books += 40
        self.job.output({"books": books})
        self.stdout.write(f"{books} books on {shelves} shelves")
