"""What an event does not have is refused where it is declared."""

from django.utils import timezone
from shop import tasks

from toban.django.tasks import exceptions

for changes in ({"priority": 3}, {"run_after": timezone.now()}):
    try:
        tasks.add.using(**changes)
    except exceptions.TaskException as error:
        assert "does not support" in str(error)
    else:
        raise AssertionError(changes)
