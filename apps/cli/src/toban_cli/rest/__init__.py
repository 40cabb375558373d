"""The calls of the commands over the REST interface of the site (docs/rest.md)."""
