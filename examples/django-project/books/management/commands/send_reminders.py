"""manage.py send_reminders"""

from django.core.management.base import BaseCommand

from books.models import Order
from toban.django import TobanCommandMixin


class Command(TobanCommandMixin, BaseCommand):
    """Reminds of each order once, with progress; ends when the run is cancelled."""

    help = "Reminds of the orders that wait"

    def handle(self, **_options: object) -> None:
        """Print a line an order."""
        waiting = Order.objects.filter(reminded=False)
        for order in self.track(waiting.iterator(), total=waiting.count()):
            self.stdout.write(f"reminder of {order}")
            order.reminded = True
            order.save(update_fields=["reminded"])
