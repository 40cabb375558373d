"""DAGs of Airflow to manifests: `dag_files` finds DAGs, tasks and their order in the syntax tree, `steps` makes steps of tasks, `schedule`
reads times, `convert` puts them together.
"""
