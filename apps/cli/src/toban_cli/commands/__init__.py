"""The commands: each reads arguments, makes calls, prints the result."""
