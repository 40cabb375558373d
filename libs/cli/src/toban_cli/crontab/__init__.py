"""Crontabs to manifests: pure functions from the bytes of a crontab to documents and a report that names every line.

`lines` splits, `templates` finds lines of templates, `layout` detects the account column, `timing` and `fields` read the time, `environment`
keeps the assignments, `command` reads the command, `naming` and `description` name and describe it, `manifest` makes the documents, `convert`
puts it together, `report` describes the result of each line, `parts` keeps within the limits of one apply.
"""
