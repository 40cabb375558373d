"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes it."""

    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("title", models.CharField(max_length=200)),
                ("reminded", models.BooleanField(default=False)),
            ],
        )
    ]
