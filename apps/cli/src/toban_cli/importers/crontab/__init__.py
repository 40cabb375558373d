"""Crontabs to manifests: pure functions from the bytes of a crontab to documents and a report that names every line.

`line_parser` splits and finds lines of templates, `account_column` detects the account column, `schedule_rule` and `time_fields` read the time,
`environment` keeps the assignments, `command` reads the command, `job_names` and `description` name and describe it, `manifest` makes the
documents, `convert` puts it together, `report` describes the result of each line, `parts` keeps within the limits of one apply.
"""
