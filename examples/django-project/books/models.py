"""Orders, and what emits an event with them."""

from django.db import models, transaction

from toban.django import emit


class Order(models.Model):
    """An order of books."""

    title = models.CharField(max_length=200)
    reminded = models.BooleanField(default=False)

    class Meta:
        app_label = "books"

    def __str__(self) -> str:
        return self.title


def place_order(title: str) -> Order:
    """Stores an order; the event order.placed exists if the order does."""
    with transaction.atomic():
        order = Order.objects.create(title=title)
        emit("order.placed", {"order": order.pk}, dedupe_key=f"order-{order.pk}")
    return order
