"""Evaluation: metrics as sums and weights, and predictions as NumPy arrays."""
