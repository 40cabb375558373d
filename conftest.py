"""Gives every test of the repository the fixtures of the testing kit."""

pytest_plugins = ["toban_testing.plugin"]
