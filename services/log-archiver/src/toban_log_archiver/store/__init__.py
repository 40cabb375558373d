"""Schema `logs`: chunks, tokens and their partitions. For the log-archiver only."""
