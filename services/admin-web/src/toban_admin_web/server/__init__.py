"""The Flask application, and the process that serves it."""
