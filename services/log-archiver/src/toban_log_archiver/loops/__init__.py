"""Work that comes back by the clock: partitions ahead, health, the archive."""
