"""Speed compared with other libraries: `python -m benchmarks` measures everything and prints one table."""
