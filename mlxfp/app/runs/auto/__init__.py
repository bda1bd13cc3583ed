"""Runs with several models: `model.name=auto`."""
