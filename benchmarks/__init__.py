"""Comparison of speed with other libraries. `python -m benchmarks` measures everything and prints a table."""
