"""The pages and streams, one module a subject."""
