"""Accounts, sessions and rights."""
