"""manage.py count_orders --days 7 north south"""

from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.db import connection


class Command(BaseCommand):
    """Counts the orders of the last days, in the regions that are named."""

    help = "Counts orders"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Positional arguments and options; the payload of a run has them under their names."""
        parser.add_argument("regions", nargs="*", default=["all"])
        parser.add_argument("--days", type=int, default=1)
        parser.add_argument("--dry-run", action="store_true")

    def handle(self, *, regions: list[str], days: int, dry_run: bool, **_options: object) -> None:
        """Print one line a region."""
        if days < 1:
            raise CommandError(f"days must be at least 1, is {days}")
        for number, region in enumerate(regions, start=1):
            self.stdout.write(f"::progress {100 * number // len(regions)} {region}::")
            with connection.cursor() as cursor:
                cursor.execute("SELECT %s * 10", [days])
                (orders,) = cursor.fetchone()
            self.stdout.write(f"{region}: {0 if dry_run else orders} orders in {days} days")
