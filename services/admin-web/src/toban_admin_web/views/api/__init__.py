"""The REST interface below /api/v1."""
