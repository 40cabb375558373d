"""The background thread of the site."""
