"""What use cases and loops need from outside the process, and the data that pass there. Adapters implement it."""
