"""Translates protobuf: LogIngest for executors, LogReader and LogArchive for people. What they do is in app."""
