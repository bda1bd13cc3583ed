"""Speed, side by side with other libraries: `python -m benchmarks` measures everything and prints one table."""
