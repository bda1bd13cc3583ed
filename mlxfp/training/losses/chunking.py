"""The logarithm of the sum of very many exponentials, a chunk of them at a time."""

from itertools import pairwise
from typing import Any

import mlx.core as mx


def logsumexp_of_products(hidden: mx.array, matrix: mx.array, bias: mx.array, chunk: int) -> mx.array:
    """Give `logsumexp(hidden @ matrix.T + bias, axis=-1)` without ever holding more than `chunk` columns of the product.

    `hidden` is float[N, D], `matrix` float[C, D], `bias` float[C]; the result float32[N]. The gradient computes each chunk again.
    """
    edges = list(pairwise([*range(0, matrix.shape[0], chunk), matrix.shape[0]]))

    def products(hidden: mx.array, matrix: mx.array, bias: mx.array) -> mx.array:
        return (hidden @ matrix.T).astype(mx.float32) + bias

    @mx.custom_function
    def whole(hidden: mx.array, matrix: mx.array, bias: mx.array) -> mx.array:
        sums = mx.full(hidden.shape[:1], -mx.inf)
        for start, stop in edges:
            own = _after(hidden, sums)
            sums = mx.logaddexp(sums, mx.logsumexp(products(own, matrix[start:stop], bias[start:stop]), axis=-1))
        return sums

    @whole.vjp
    def gradients(inputs: Any, cotangent: mx.array, sums: mx.array) -> Any:
        hidden, matrix, bias = inputs
        of_hidden = mx.zeros(hidden.shape, mx.float32)
        of_matrix: list[mx.array] = []
        of_bias: list[mx.array] = []
        for start, stop in edges:
            own = _after(hidden, of_hidden, *of_matrix[-1:])
            shares = mx.exp(products(own, matrix[start:stop], bias[start:stop]) - sums[:, None]) * cotangent[:, None]
            of_bias.append(shares.sum(axis=0).astype(bias.dtype))
            shares = shares.astype(hidden.dtype)
            of_hidden = of_hidden + shares @ matrix[start:stop]
            of_matrix.append((shares.T @ own).astype(matrix.dtype))
        return of_hidden.astype(hidden.dtype), mx.concatenate(of_matrix), mx.concatenate(of_bias)

    function: Any = whole  # the decorated one, which MLX does not type
    result: mx.array = function(hidden, matrix, bias)
    return result


def _after(array: mx.array, *others: mx.array) -> mx.array:
    """Return the array, to be used only when the others are computed: else MLX may hold the products of all chunks at once."""
    after: list[mx.array] = mx.depends([array], list(others))
    return after[0]
