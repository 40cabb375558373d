"""Timers of systemd to manifests: `unit_file` reads units, `calendar` and `time_span` their times, `exec_line` commands, `service` makes the
job, `convert` puts a timer and its service together.
"""
