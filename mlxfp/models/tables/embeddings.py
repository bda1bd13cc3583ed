"""Embeddings of numeric columns: learned functions from a number to a vector, with separate weights for each column."""

from collections.abc import Sequence
from math import pi

import mlx.core as mx
import numpy as np
from mlx import nn

from mlxfp.models.layers import random_key
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import ArgumentError


class PeriodicEmbedding(nn.Module):
    """Periodic embedding of a number x: [x, W cos(2 pi f x + p) + b], with separate f, p, W and b for each column.

    The name in the literature is PBLD (periodic, bias, linear, dense): Holzmüller, Grinsztajn and Steinwart, "Better by Default", 2024,
    after Gorishniy, Rubachev and Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", 2022. The frequencies f are
    normal with standard deviation `sigma`, the phases p uniform.

    >>> PeriodicEmbedding(3, frequencies=16, size=4)(mx.zeros((2, 3))).shape
    (2, 3, 4)
    """

    def __init__(self, count: int, *, frequencies: int, size: int, sigma: float = 0.1, seed: int = 0) -> None:
        """Initialize the frequencies, phases, weights and biases for `count` numeric columns."""
        super().__init__()
        check_positive(count=count, frequencies=frequencies)
        check_positive(**{"size - 1": size - 1})
        bound, shape = frequencies**-0.5, (count, frequencies)
        self.frequency = sigma * mx.random.normal(shape, key=random_key(seed, "frequency"))
        self.phase = mx.random.uniform(-pi, pi, shape, key=random_key(seed, "phase"))
        self.weight = mx.random.uniform(-bound, bound, (*shape, size - 1), key=random_key(seed, "weight"))
        self.bias = mx.random.uniform(-bound, bound, (count, size - 1), key=random_key(seed, "bias"))

    def __call__(self, numbers: mx.array) -> mx.array:
        """Return one vector per number. The shape [B, count] becomes [B, count, size]."""
        waves = mx.cos(2 * pi * self.frequency[:, None] * numbers.T[..., None] + self.phase[:, None])  # [count, B, frequencies]
        linear = (waves @ self.weight).swapaxes(0, 1) + self.bias
        return mx.concatenate([linear, numbers[..., None]], axis=-1)


class PiecewiseLinearEmbedding(nn.Module):
    """Piecewise linear embedding of a number x: v x + c + W e(x), with the piecewise linear encoding e(x).

    The encoding e(x) is 1 in bins below x, 0 in bins above x, and the relative position in the bin of x (Gorishniy, Rubachev and Babenko,
    "On Embeddings for Numerical Features in Tabular Deep Learning", 2022). Below the first and above the last bin, e continues linearly.
    `bins` contains at least two ascending bin edges for each column: see `fit_columns`.

    W starts at zero, so that the embedding is initially linear in x (version B of Gorishniy, Kotelnikov and Babenko, 2025).

    >>> PiecewiseLinearEmbedding([(0.0, 1.0, 3.0), (-1.0, 1.0)], size=4)(mx.zeros((5, 2))).shape
    (5, 2, 4)
    """

    def __init__(self, bins: Sequence[Sequence[float]], *, size: int, seed: int = 0) -> None:
        """Store the bins, which are not trained, and initialize the weights."""
        super().__init__()
        check_positive(size=size)
        if short := [column for column, edges in enumerate(bins) if len(edges) < 2]:
            raise ArgumentError(
                f"Each numeric column needs at least two bin edges, got {list(bins[short[0]])} for column {short[0]}. "
                "Fit the bins: fit_columns(rows, numbers=[...], bins=48)."
            )
        counts, bound = [len(edges) - 1 for edges in bins], size**-0.5
        shape = (len(bins), max(counts))
        slope, start = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        low, high = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        for column, (edges, count) in enumerate(zip(bins, counts, strict=True)):
            widths = np.diff(np.asarray(edges, np.float64))
            slope[column, :count], start[column, :count] = 1 / widths, -np.asarray(edges[:-1]) / widths
            high[column, :count] = 1
            low[column, 0], high[column, count - 1] = -np.inf, np.inf
        # MLX does not train arrays in attributes whose names begin with an underscore, such as `_slope`.
        self._slope, self._start, self._low, self._high = map(mx.array, (slope, start, low, high))
        self.weight = mx.zeros((*shape, size))
        self.slope = mx.random.uniform(-bound, bound, (len(bins), size), key=random_key(seed, "slope"))
        self.bias = mx.random.uniform(-bound, bound, (len(bins), size), key=random_key(seed, "bias"))

    def encode(self, numbers: mx.array) -> mx.array:
        """Return the piecewise linear encoding of each number. The shape [B, count] becomes [B, count, bins]."""
        return mx.clip(numbers[..., None] * self._slope + self._start, self._low, self._high)

    def __call__(self, numbers: mx.array) -> mx.array:
        """Return one vector per number. The shape [B, count] becomes [B, count, size]."""
        curved = (self.encode(numbers).swapaxes(0, 1) @ self.weight).swapaxes(0, 1)
        embedded: mx.array = numbers[..., None] * self.slope + self.bias + curved
        return embedded
