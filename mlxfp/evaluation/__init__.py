"""Evaluation: metrics as sums and weights, and predictions as numpy arrays."""
