"""A package, so that the fixtures of its scope end when no test of it is left."""
