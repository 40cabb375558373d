"""The leader, its settings and the health of the whole."""
