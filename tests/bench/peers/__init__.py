"""Other schedulers and queues beside Toban, on the same machine in the same minutes."""
