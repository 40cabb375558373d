"""Talks to others: the object store, coordinators, the encoding of chunks."""
