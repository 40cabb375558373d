"""The toban command."""
