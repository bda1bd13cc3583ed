"""Activation functions. On a GPU, the functions are those of MLX. On a CPU, the functions are faster, with equal precision.

On a CPU, MLX computes erf and exp one number at a time, in 10 to 20 ns. The functions `gelu` and `silu` use rational approximations
instead. A rational approximation needs only products and sums, which compile to vector instructions.

Times for 32 x 96 x 256 numbers on a CPU, forward and backward pass in a compiled step:

- GELU: 25 ms in MLX, 3.7 ms in this module.
- SiLU: 12 ms in MLX, 2.6 ms in this module.
- ReLU: 0.8 ms in MLX.

The error of both approximations is at most 3e-7 max(|x|, 1), as small as the rounding errors of float32. The tanh form of GELU, an
approximation in common use, has an error of 5e-4.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Literal

import mlx.core as mx
from mlx import nn

from mlxfp.support.registries import Registry

# Names in config.json. "gelu_new" equals "gelu_pytorch_tanh", and "silu" equals "swish".
Activation = Literal["gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish"]


def gelu(x: mx.array) -> mx.array:
    """Apply x * Phi(x) to an array of any shape and float dtype. Phi is the cumulative normal distribution function.

    Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; the exact form, as in BERT and ModernBERT.
    """
    return _gelu(x) if _on_cpu() else nn.gelu(x)


def silu(x: mx.array) -> mx.array:
    """Apply x * sigmoid(x) to an array of any shape and float dtype.

    Ramachandran, Zoph and Le, "Searching for Activation Functions", 2017, under the name Swish.
    """
    return _silu(x) if _on_cpu() else nn.silu(x)


def mish(x: mx.array) -> mx.array:
    """Apply x * tanh(log(1 + e^x)) to an array of any shape and float dtype.

    Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.
    """
    return _mish(x) if _on_cpu() else nn.mish(x)


def selu(x: mx.array) -> mx.array:
    """Apply SELU to an array of any shape and float dtype: s x for x > 0, s a (e^x - 1) otherwise, with s = 1.0507 and a = 1.6733.

    Klambauer, Unterthiner, Mayr and Hochreiter, "Self-Normalizing Neural Networks", 2017.
    """
    return _selu(x) if _on_cpu() else nn.selu(x)


ACTIVATIONS: Registry[Callable[[mx.array], mx.array]] = Registry(
    "activation",
    {"gelu": gelu, "gelu_new": nn.gelu_approx, "gelu_pytorch_tanh": nn.gelu_approx, "relu": nn.relu, "silu": silu, "swish": silu},
)


def _on_cpu() -> bool:
    return bool(mx.default_device() == mx.Device(mx.cpu, 0))


def _polynomial(coefficients: Sequence[float], x: mx.array) -> mx.array:
    """Evaluate a polynomial by Horner's rule. The first coefficient belongs to the highest power."""
    value: mx.array = reduce(lambda value, coefficient: value * x + coefficient, coefficients[2:], coefficients[0] * x + coefficients[1])
    return value


# The functions Phi(x) and sigmoid(x) are approximated by 1/2 + x P(x^2) / Q(x^2) with polynomials P and Q. The error is below 1e-8.
# Each tuple has three items: the coefficients of the numerator P, the coefficients of the denominator Q, and a limit of |x|.
# For |x| above the limit, Phi(x) and sigmoid(x) are 0 or 1 within 5e-8.
# Fitting method: Lawson's method (iteratively reweighted least squares) at 200 Chebyshev points, with 60 decimal digits.
_PHI = (
    (2.2749278697666975e-08, 6.351439843782624e-06, 0.00016878949876415305, 0.004677042073893999, 0.03384956777374926, 0.3989422350361531),
    (1.1974501840083355e-06, 7.36335355020565e-05, 0.0018842455925433272, 0.028644030262675955, 0.25151420746498143, 1.0),
    5.5,
)
_SIGMOID = (
    (1.376929718341425e-11, 8.250783145557488e-08, 5.509138526095952e-05, 0.008378894975690094, 0.24999998648075814),
    (3.1538469320030174e-09, 5.212087803664022e-06, 0.0016244531768708523, 0.11684885865858327, 1.0),
    17.0,
)


def _share(tops: Sequence[float], bottoms: Sequence[float], limit: float, x: mx.array) -> mx.array:
    inside = mx.clip(x, -limit, limit)
    square = inside * inside
    share = 0.5 + inside * _polynomial(tops, square) / _polynomial(bottoms, square)
    return mx.where(x <= -limit, 0.0, mx.where(x >= limit, 1.0, share))  # exact zeros, because the result is multiplied with large x


def _normal_density(x: mx.array) -> mx.array:
    """Return the density of the standard normal distribution: exp(-x^2/2) / sqrt(2 pi). The density is 0 if x^2/2 is 16 or more."""
    square = x * x
    power = _polynomial((1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0), mx.minimum(square, 32.0) * (-1 / 32))
    for _ in range(4):
        power = power * power
    return mx.where(square < 32.0, power * 0.3989422804014327, 0.0)


def _gated(share: Callable[[mx.array], mx.array], slope: Callable[[mx.array, mx.array], mx.array]) -> Callable[[mx.array], mx.array]:
    gated = mx.custom_function(lambda x: x * share(x))

    @gated.vjp
    def back(x: mx.array, cotangent: mx.array, _: mx.array) -> mx.array:
        part = share(x)
        return cotangent * (part + slope(x, part))

    return lambda x: gated(x.astype(mx.float32)).astype(x.dtype)  # type: ignore[attr-defined]  # it returns what the first lambda does


_gelu = _gated(partial(_share, *_PHI), lambda x, _: x * _normal_density(x))
_silu = _gated(partial(_share, *_SIGMOID), lambda x, share: x * share * (1 - share))


def _exponential(x: mx.array, low: float, high: float) -> mx.array:
    """Return e^x as the 32nd power of a Taylor series of e^(x / 32), with relative error 2e-6. x is clipped to [low, high]."""
    power = _polynomial((1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0), mx.clip(x, low, high) * (1 / 32))
    for _ in range(5):
        power = power * power
    return power


_SELU_SCALE, _SELU_LIMIT = 1.0507009873554805, 1.6732632423543772


def _custom(function: Callable[[mx.array], mx.array], slope: Callable[[mx.array], mx.array]) -> Callable[[mx.array], mx.array]:
    """Return `function`, computed in float32. `slope` computes the derivative of `function`."""
    custom = mx.custom_function(function)

    @custom.vjp
    def back(x: mx.array, cotangent: mx.array, _: mx.array) -> mx.array:
        return cotangent * slope(x)

    return lambda x: custom(x.astype(mx.float32)).astype(x.dtype)  # type: ignore[attr-defined]  # it returns what the function does


def _mish_share(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return e^x and tanh(log(1 + e^x)), computed as n / (n + 2) with n = e^x (e^x + 2)."""
    power = _exponential(x, -20.0, 12.0)
    product = power * (power + 2)
    return power, product / (product + 2)


def _mish_slope(x: mx.array) -> mx.array:
    power, share = _mish_share(x)
    return share + x * (1 - share * share) * power / (1 + power)


_mish = _custom(lambda x: x * _mish_share(x)[1], _mish_slope)
_selu = _custom(  # mx.where is avoided, because it would prevent vector instructions
    lambda x: _SELU_SCALE * (mx.maximum(x, 0.0) + _SELU_LIMIT * (_exponential(x, -20.0, 0.0) - 1)),
    lambda x: _SELU_SCALE * (_SELU_LIMIT * _exponential(x, -20.0, 0.0) + (1 - _SELU_LIMIT) * (x > 0).astype(mx.float32)),
)
