"""The Flask application, and the gunicorn process that serves it."""
