"""Schedules: pure functions of the step. Pass one as the `learning_rate` of an optimizer.

The step counts updates already made, so the first update asks for step 0. With a warmup of w updates, update i (from 0) has the rate
`rate * (i + 1) / w`: the first one is small and not zero.
"""

from collections.abc import Callable
from math import pi

import mlx.core as mx
from attrs import frozen

from mlxfp.core.checks import check_not_negative, check_positive
from mlxfp.core.errors import ArgumentError

Schedule = Callable[[mx.array | int], mx.array]


def constant(rate: float, *, warmup: int = 0) -> Schedule:
    """Rise linearly for `warmup` updates, then stay at `rate`.

    >>> [round(constant(1.0, warmup=4)(step).item(), 2) for step in (0, 1, 3, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    check_not_negative(warmup=warmup)
    return _Schedule("constant", rate, 1, warmup, rate)


def linear_decay(rate: float, *, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Rise linearly for `warmup` updates, fall linearly from `rate` to `end` at `steps`, then stay there.

    >>> [round(linear_decay(1.0, steps=6, warmup=2)(step).item(), 2) for step in (0, 1, 2, 4, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    """
    _check_steps(steps, warmup)
    return _Schedule("linear", rate, steps, warmup, end)


def cosine_decay(rate: float, *, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Rise linearly for `warmup` updates, fall as half a cosine from `rate` to `end` at `steps`, then stay there.

    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017, without the restarts.

    >>> [round(cosine_decay(1.0, steps=4)(step).item(), 2) for step in (0, 1, 2, 4, 9)]
    [1.0, 0.85, 0.5, 0.0, 0.0]
    """
    _check_steps(steps, warmup)
    return _Schedule("cosine", rate, steps, warmup, end)


@frozen
class _Schedule:
    shape: str
    rate: float
    steps: int
    warmup: int
    end: float

    def __call__(self, step: mx.array | int) -> mx.array:
        done = mx.array(step).astype(mx.float32)
        rising = self.rate * (done + 1) / max(self.warmup, 1)
        share = mx.clip((done - self.warmup) / max(self.steps - self.warmup, 1), 0, 1)
        left = 1 - share if self.shape == "linear" else 0.5 * (1 + mx.cos(pi * share))
        return mx.where(done < self.warmup, rising, self.end + (self.rate - self.end) * left)


def _check_steps(steps: int, warmup: int) -> None:
    check_positive(steps=steps)
    check_not_negative(warmup=warmup)
    if warmup >= steps:
        raise ArgumentError(f"The warmup must end before the decay does, got warmup={warmup} and steps={steps}.")
