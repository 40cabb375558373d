"""Decisions of a coordinator: pure functions of state, event and time."""
