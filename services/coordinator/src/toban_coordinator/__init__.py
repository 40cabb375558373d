"""Leads, decides, owns schema scheduler."""
