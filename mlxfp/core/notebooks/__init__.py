"""Notebook output of core values."""
