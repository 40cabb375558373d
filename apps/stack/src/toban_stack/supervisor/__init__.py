"""The supervisor of a stack: a process that starts the others, and starts them again when they end."""
