"""`toban doctor`: checks the configuration and the certificates here, every server by its address, and the servers' own diagnosis.

`probe` collects, `checks` judges (pure), `merge` combines the findings of several servers.
"""
