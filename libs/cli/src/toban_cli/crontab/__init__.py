"""Crontabs to manifests: pure functions from the bytes of a crontab to documents and a report that names every line.

`lines` splits, `layout` tells system crontabs from users' ones, `timing` and `fields` read when, `environment` keeps the assignments,
`command` reads what, `naming` names it, `manifest` writes the documents, `convert` puts it together, `report` says what became of each line.
"""
