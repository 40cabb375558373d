"""Definitions of other schedulers to manifests: pure functions from text to documents, and a report that names every definition.

`crontab`, `systemd`, `kubernetes`, `celery_beat` and `airflow` convert. They share `result` (the entries of the report and the documents of one
definition), `names`, `command_line`, `report` (report and YAML as text), `parts` (the limits of one apply), `apply`, and `files` (all I/O).
"""
