"""Work that repeats by the clock: partitions ahead, health, the archive."""
