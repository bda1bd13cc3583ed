"""Runs with several models: `model.name=auto`, or one model with several seeds."""
