"""Which executor gets a run, and its order."""
