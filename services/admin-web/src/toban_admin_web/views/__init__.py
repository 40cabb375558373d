"""What a browser can ask for, a module a subject."""
