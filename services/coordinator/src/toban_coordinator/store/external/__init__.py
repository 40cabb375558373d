"""External steps and their workers."""
