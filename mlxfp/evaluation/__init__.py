"""Evaluation of models: metrics of batches, and predictions as NumPy arrays."""
