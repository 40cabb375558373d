"""`toban doctor`: looks at the configuration and the certificates here, at every server by its address, and asks the coordinators.

`look` reaches out, `checks` judges what it found (pure), `finding` is what both give.
"""
