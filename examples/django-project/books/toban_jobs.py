"""Which commands of this app Toban runs, and when. `manage.py toban_sync` applies it."""

from toban.django import command_job

command_job(
    "send_reminders",
    description="Reminds of the orders that wait",
    cron="0 7 * * MON-FRI",
    timezone="Asia/Tokyo",
    job={"timeout_seconds": 600},
)
command_job("count_books", payload={"shelves": 3})
