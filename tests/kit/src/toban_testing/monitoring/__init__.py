"""Monitoring of Toban as code: metric catalogue, dashboard, alerts, and their checks."""
