"""The commands: each reads arguments, makes calls, shows the answer."""
